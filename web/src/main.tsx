/** Begins the dashboard: one cache of answers, one router. */

import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Failure } from "./api/client";
import { setLoggedIn } from "./app/freshness";
import "./app/preferences";
import { router } from "./app/router";
import "./style/tokens.css";
import "./style/base.css";
import "./style/kit.css";
import "./style/screens.css";

const RETRIES = 2;

const queries = new QueryClient({
  queryCache: new QueryCache({
    onError: (error) => error instanceof Failure && error.status === 401 && setLoggedIn(false),
    onSuccess: () => setLoggedIn(true),
  }),
  defaultOptions: {
    queries: {
      staleTime: 2000,
      // What the server has refused is not asked for again by itself.
      retry: (count, error) =>
        count < RETRIES && (!(error instanceof Failure) || error.status === 0 || error.status >= 500),
      refetchOnWindowFocus: false,
      networkMode: "always",
    },
  },
});

const root = document.getElementById("root");
if (!root) throw new Error("the page has no #root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
