import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

/** The built files go into the Python package: the API serves them, and no Node is needed where it runs. */
export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../queuer/api/pages/web",
    emptyOutDir: true,
    // Inlined files would be data: addresses, which the page's policy refuses.
    assetsInlineLimit: 0,
    // Measured compressed by the tests: at most 250 kB.
    chunkSizeWarningLimit: 800,
    modulePreload: { polyfill: false },
  },
  server: {
    host: "127.0.0.1",
    proxy: { "/api": "http://127.0.0.1:8787", "/healthz": "http://127.0.0.1:8787", "/login": "http://127.0.0.1:8787" },
  },
});
