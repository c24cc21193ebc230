/**
 * One stream of changes per browser, however many tabs are open: the tab that holds the lock listens, and tells
 * the others over a channel. A hidden tab gives the lock away. Browsers allow six connections to a server.
 */

export type Topic = "queues" | "overview" | "workloads" | "cycle";
export type Link = "connecting" | "live" | "lost" | "ended";

interface Told {
  /** A tab that has just opened wants to know how the stream is. */
  ask?: true;
  link?: Link;
  topics?: readonly Topic[];
  id?: string;
}

const NAME = "queuer-live";
const ALL: readonly Topic[] = ["queues", "overview", "workloads", "cycle"];
const LONGEST_PAUSE_MS = 5_000;
/** Of a server that lives something comes each 15 s. */
const SILENT_MS = 35_000;

export interface Listener {
  changed(topics: readonly Topic[]): void;
  link(link: Link): void;
}

/** Follow what changes until the returned function is called. */
export function follow(listener: Listener): () => void {
  const channel = new BroadcastChannel(NAME);
  let seen: string | undefined;
  let turn: AbortController | undefined;
  let leading: Link | undefined;

  const take = (told: Told) => {
    if (told.id) seen = told.id;
    if (told.link) listener.link(told.link);
    if (told.topics) listener.changed(told.topics);
  };
  const tell = (told: Told) => {
    leading = told.link ?? leading;
    channel.postMessage(told);
    take(told);
  };
  channel.onmessage = (message: MessageEvent<Told>) => {
    if (message.data.ask && leading) channel.postMessage({ link: leading });
    take(message.data);
  };

  const lead = () => {
    turn = new AbortController();
    const { signal } = turn;
    const work = () => listen(signal, () => seen, tell);
    // Pages over plain http have no locks: each tab listens for itself then.
    const led = "locks" in navigator ? navigator.locks.request(NAME, { signal }, work) : work();
    led.catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
  };
  const seenOrHidden = () => {
    if (document.visibilityState === "hidden") {
      turn?.abort();
      turn = leading = undefined;
    } else if (!turn) {
      // What was missed meanwhile is read anew, whoever leads.
      listener.changed(ALL);
      lead();
    }
  };

  document.addEventListener("visibilitychange", seenOrHidden);
  if (document.visibilityState !== "hidden") lead();
  channel.postMessage({ ask: true });
  return () => {
    document.removeEventListener("visibilitychange", seenOrHidden);
    turn?.abort();
    channel.close();
  };
}

/** Hold the stream until `signal`; reconnects by itself, later each time. */
async function listen(signal: AbortSignal, seen: () => string | undefined, tell: (told: Told) => void): Promise<void> {
  let pause = 1000;
  while (!signal.aborted) {
    const ended = await once(signal, seen(), tell, () => (pause = 1000));
    if (signal.aborted) return;
    tell({ link: ended ? "ended" : "lost" });
    await wait(pause, signal);
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
  }
}

/** One connection, to its end. True: the server knows nobody who asks any more. */
function once(
  signal: AbortSignal,
  after: string | undefined,
  tell: (told: Told) => void,
  opened: () => void,
): Promise<boolean> {
  return new Promise((resolve) => {
    const source = new EventSource(`/api/v1/stream${after ? `?after=${after}` : ""}`);
    let silent = setTimeout(() => close(false), SILENT_MS);
    const heard = () => {
      clearTimeout(silent);
      silent = setTimeout(() => close(false), SILENT_MS);
    };
    const close = (ended: boolean) => {
      clearTimeout(silent);
      signal.removeEventListener("abort", abort);
      source.close();
      resolve(ended);
    };
    const abort = () => close(false);
    signal.addEventListener("abort", abort, { once: true });
    source.onopen = () => {
      opened();
      heard();
      tell({ link: "live" });
    };
    source.onerror = () => {
      source.close();
      void refused(signal).then(close);
    };
    source.addEventListener("beat", (message: MessageEvent<string>) => {
      heard();
      tell({ id: message.lastEventId });
    });
    for (const topic of ALL) {
      source.addEventListener(topic, (message: MessageEvent<string>) => {
        heard();
        tell({ topics: [topic], id: message.lastEventId });
      });
    }
    source.addEventListener("reset", (message: MessageEvent<string>) => {
      heard();
      const { topics } = JSON.parse(message.data) as { topics?: Topic[] };
      tell({ topics: topics ?? ALL });
    });
    source.addEventListener("end", (message: MessageEvent<string>) => {
      close((JSON.parse(message.data) as { code?: string }).code === "unauthenticated");
    });
  });
}

/** Whether the server knows nobody who asks. The browser does not tell with which status a stream failed. */
async function refused(signal: AbortSignal): Promise<boolean> {
  try {
    return (await fetch("/api/v1/me", { signal })).status === 401;
  } catch {
    return false;
  }
}

function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(end, milliseconds);
    function end() {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    }
    signal.addEventListener("abort", end, { once: true });
  });
}
