/** Addresses of the screens. What a reader has chosen lives in them, so that a link shows the same elsewhere. */

import {
  createRootRoute,
  createRoute,
  createRouter,
  parseSearchWith,
  stringifySearchWith,
} from "@tanstack/react-router";
import { CycleScreen, Cycles } from "../screens/Cycles";
import { Editor } from "../screens/edit/Editor";
import { Plan } from "../screens/edit/Plan";
import { FairShare } from "../screens/FairShare";
import { Jobs } from "../screens/Jobs";
import { Job } from "../screens/job/Job";
import { Audit, Events } from "../screens/Log";
import { Me } from "../screens/Me";
import { Overview } from "../screens/Overview";
import { Queue } from "../screens/queue/Queue";
import { Queues } from "../screens/Queues";
import { Topology } from "../screens/topology/Topology";
import { Nowhere, Shell } from "./Shell";

/** Parameters of an address are plain words. */
export type Search<Name extends string> = Partial<Record<Name, string>>;

/** Only the named parameters, and only those that say something. */
function only<Name extends string>(...names: Name[]) {
  return (raw: Record<string, unknown>): Search<Name> =>
    Object.fromEntries(
      names.filter((name) => raw[name] !== undefined && raw[name] !== "").map((name) => [name, String(raw[name])]),
    ) as Search<Name>;
}

const root = createRootRoute({ component: Shell, notFoundComponent: Nowhere });

const routes = [
  createRoute({ getParentRoute: () => root, path: "/", component: Overview, validateSearch: only("resource") }),
  createRoute({
    getParentRoute: () => root,
    path: "/queues",
    component: Queues,
    validateSearch: only("resource", "closed", "find", "only", "scale", "at"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/queues/$path",
    component: Queue,
    validateSearch: only("resource", "tab", "range"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/jobs",
    component: Jobs,
    validateSearch: only(
      "queue",
      "namespace",
      "name",
      "user",
      "state",
      "reason",
      "verdict",
      "unstartable",
      "deleted",
      "columns",
      "group",
    ),
  }),
  createRoute({ getParentRoute: () => root, path: "/jobs/$uid", component: Job }),
  createRoute({
    getParentRoute: () => root,
    path: "/topology",
    component: Topology,
    validateSearch: only("level", "resource", "shape", "find", "job", "fit", "as"),
  }),
  createRoute({ getParentRoute: () => root, path: "/cycles", component: Cycles }),
  createRoute({ getParentRoute: () => root, path: "/cycles/$id", component: CycleScreen }),
  createRoute({ getParentRoute: () => root, path: "/fair-share", component: FairShare, validateSearch: only("root") }),
  createRoute({ getParentRoute: () => root, path: "/edit", component: Editor, validateSearch: only("root", "as") }),
  createRoute({ getParentRoute: () => root, path: "/edit/$id", component: Plan }),
  createRoute({
    getParentRoute: () => root,
    path: "/events",
    component: Events,
    validateSearch: only("type", "queue", "uid"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/audit",
    component: Audit,
    validateSearch: only("target", "actor"),
  }),
  createRoute({ getParentRoute: () => root, path: "/me", component: Me }),
] as const;

const stringify = stringifySearchWith(String);

export const router = createRouter({
  routeTree: root.addChildren(routes),
  defaultPreload: false,
  scrollRestoration: true,
  parseSearch: parseSearchWith((text) => text),
  // A parameter that says nothing is left out.
  stringifySearch: (search) =>
    stringify(Object.fromEntries(Object.entries(search).filter(([, value]) => value !== ""))),
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
