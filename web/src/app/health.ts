/**
 * What the page depends on, and how each part is now: the stream, the login, the server with its database, and the
 * controller. The lamp in the header, the banners and the health sheet all read it here.
 */

import { queryOptions, useQuery } from "@tanstack/react-query";
import { Failure, api, body } from "../api/client";
import type { Controller } from "../api/schema";
import { between, span } from "../text/time";
import { type Freshness, useFreshness } from "./freshness";
import { useNow } from "./now";

/** `wait`: it comes back by itself. `bad`: somebody has to act. */
export type Level = "good" | "wait" | "bad";

export interface Part {
  name: string;
  level: Level;
  /** For the lamp. */
  word: string;
  text: string;
  since?: Date | undefined;
  /** What to do; empty: nothing. */
  act: string;
  command?: string;
}

export const SERVER = "server and database";
const ASK_MS = 1500;
/** A server that says nothing for so long is called away. */
const PATIENCE_MS = 3000;

export const probe = () =>
  queryOptions({
    queryKey: ["settled", "controller"],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/controller", { signal: AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]) })),
    refetchInterval: ASK_MS,
    staleTime: 0,
    retry: false,
  });

export interface Seen extends Pick<Freshness, "link" | "loggedIn" | "since"> {
  controller: Controller | undefined;
  /** Why the last question was not answered; null: it was. */
  error: Error | null;
  /** When the server answered this question last; before its first answer the stream's time stands for it. */
  answered: Date | undefined;
}

/** The parts, the gravest first. */
export function useHealth(): Part[] {
  const { link, loggedIn, since } = useFreshness();
  const { data: controller, error, dataUpdatedAt } = useQuery(probe());
  const answered = dataUpdatedAt ? new Date(dataUpdatedAt) : undefined;
  return health({ link, loggedIn, since, controller, error, answered }, useNow());
}

const ORDER: readonly Level[] = ["bad", "wait", "good"];

export function health(seen: Seen, now: Date): Part[] {
  const parts = [login(seen), server(seen), decisions(seen), stream(seen, now)];
  return parts.sort((one, other) => ORDER.indexOf(one.level) - ORDER.indexOf(other.level));
}

function login({ link, loggedIn, answered }: Seen): Part {
  const name = "login";
  if (loggedIn && link !== "ended") return { name, level: "good", word: "live", text: "You are logged in.", act: "" };
  return {
    name,
    level: "bad",
    word: "not logged in",
    text: "Your login has ended.",
    since: answered,
    act: "Log in again. What this page still shows was read before.",
  };
}

function server({ error, answered, since }: Seen): Part {
  const name = SERVER;
  const failure = error instanceof Failure ? error : undefined;
  // A refused login is an answer.
  if (!failure || (failure.status > 0 && failure.status < 500))
    return { name, level: "good", word: "live", text: "The server answers, and reads its database.", act: "" };
  const [word, where] = LACKS[failure.code] ?? ["fault", "into the log of its API"];
  return {
    name,
    level: "bad",
    word,
    text: failure.message,
    since: answered ?? since,
    act: `Whoever runs Queuer looks ${where}. The page comes back by itself.`,
  };
}

const NO_SERVER = ["no server", "at the pods of its API"] as const;

/** By the code of a failure: what is missing, and where to look. `unexpected`: a proxy answers, and not Queuer. */
const LACKS: Record<string, readonly [word: string, where: string]> = {
  unreachable: NO_SERVER,
  unexpected: NO_SERVER,
  database_unavailable: ["no database", "at PostgreSQL"],
};

const WORDS: Partial<Record<Controller["state"], string>> = {
  away: "no Kubernetes",
  unguarded: "admits nothing new",
  failing: "decisions fail",
};

function decisions({ controller, error }: Seen): Part {
  const name = "controller";
  if (error) return { name, level: "wait", word: "not known", text: "Not known: the server does not say.", act: "" };
  if (!controller)
    return { name, level: "wait", word: "connecting", text: "Not known yet: the server is being asked.", act: "" };
  const text = sentence(controller.text);
  if (controller.state === "leading" || controller.state === "idle")
    return { name, level: "good", word: "live", text, act: "" };
  return {
    name,
    level: "bad",
    word: WORDS[controller.state] ?? "nobody decides",
    text,
    since: controller.state === "stale" && controller.at ? new Date(controller.at) : undefined,
    act: "Whoever runs Queuer asks what is wrong:",
    command: "queuer doctor",
  };
}

function stream({ link, since }: Seen, now: Date): Part {
  const name = "live updates";
  if (link === "live")
    return { name, level: "good", word: "live", text: "Changes are shown as they happen.", since, act: "" };
  if (link === "ended")
    return { name, level: "wait", word: "not logged in", text: "No changes come in until you log in.", since, act: "" };
  if (link === "connecting") return { name, level: "wait", word: "connecting", text: "The page connects.", act: "" };
  return {
    name,
    level: "wait",
    word: `reconnecting, ${span(between(since, now))}`,
    text: "No changes come in.",
    since,
    act: "The page connects again by itself. Load it anew where that lasts.",
  };
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
}
