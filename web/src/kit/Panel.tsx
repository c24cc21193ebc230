/**
 * A part of a screen that is loaded, fails and is asked again by itself. It never says "none" before an answer
 * came, and keeps an older answer, marked so, when a newer one fails.
 */

import { type ReactNode, useEffect, useId, useState } from "react";
import { Failure } from "../api/client";
import { useNow } from "../app/now";
import { clock } from "../text/time";

/** A query, as much of it as a part of a screen needs. Its data may have been made of the answer. */
interface Asked<T> {
  data: T | undefined;
  error: Error | null;
  dataUpdatedAt: number;
  refetch: () => unknown;
}

interface Frame {
  title: string;
  /** Words beside the title. */
  beside?: ReactNode;
  /** At the other end of its line: pickers, what copies. */
  tools?: ReactNode;
  className?: string;
}

interface Props<T> extends Frame {
  query: Asked<T>;
  /** What is there before and without an answer: fields that narrow it, which may be what made it fail. */
  above?: ReactNode;
  children: (data: T) => ReactNode;
}

export function Panel<T>({ query, above, children, ...frame }: Props<T>) {
  return (
    <Part {...frame} busy={query.data === undefined && !query.error}>
      {above}
      <Answer query={query}>{children}</Answer>
    </Part>
  );
}

/** The frame alone, of what is there already. */
export function Part({
  title,
  beside,
  tools,
  className = "",
  busy = false,
  children,
}: Frame & { busy?: boolean; children: ReactNode }) {
  const id = useId();
  return (
    <section className={`panel ${className}`} aria-labelledby={id} aria-busy={busy}>
      <header className="panel-head">
        <h2 id={id}>{title}</h2>
        {beside}
        {tools && <div className="panel-tools">{tools}</div>}
      </header>
      {children}
    </section>
  );
}

/** The same without a frame. */
export function Answer<T>({ query, children }: Pick<Props<T>, "query" | "children">) {
  const { data, error } = query;
  // That nobody is logged in any more is said once, above all panels.
  const ended = error instanceof Failure && error.status === 401;
  if (data === undefined) {
    if (ended) return <Empty>This was not read: nobody is logged in.</Empty>;
    return error ? <Trouble error={error} retry={() => void query.refetch()} /> : <Skeleton />;
  }
  return (
    <>
      {error && !ended && <Trouble error={error} retry={() => void query.refetch()} since={query.dataUpdatedAt} />}
      <div className={error ? "aged" : undefined}>{children(data)}</div>
    </>
  );
}

/** What failed, what it means, whom to show it to, and a way to try again. */
export function Trouble({ error, retry, since }: { error: Error; retry?: () => void; since?: number }) {
  const now = useNow();
  const failure = error instanceof Failure ? error : undefined;
  return (
    <div className={failure?.status === 403 ? "trouble lacking" : "trouble"} role="alert">
      <p>
        <strong>{failure?.title ?? "Something went wrong"}.</strong> {error.message}
        {since ? ` Showing what was so at ${clock(new Date(since), now)}.` : ""}
      </p>
      {failure?.errors.length ? (
        <ul>
          {failure.errors.map((fault) => (
            <li key={fault.field}>
              <code>{fault.field}</code> {fault.message}
              {fault.hint && `: ${fault.hint}`}
            </li>
          ))}
        </ul>
      ) : null}
      <p className="row">
        {retry && failure?.status !== 403 && (
          <button type="button" onClick={retry}>
            Retry
          </button>
        )}
        {failure?.status === 401 && <a href={loginAddress()}>Log in again</a>}
        {failure?.requestId && <small>request {failure.requestId}</small>}
      </p>
    </div>
  );
}

export function loginAddress(): string {
  const here = window.location.pathname + window.location.search;
  return `/login?next=${encodeURIComponent(here)}`;
}

/** Nothing for a moment, so that quick answers do not flash; then grey lines. */
function Skeleton() {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), 150);
    return () => clearTimeout(timer);
  }, []);
  if (!shown) return <div className="skeleton" />;
  return (
    <div className="skeleton">
      <span className="visually-hidden">Loading</span>
      <i />
      <i />
      <i />
    </div>
  );
}

/** Why there is nothing to see, and what to do about it. */
export function Empty({ children }: { children: ReactNode }) {
  return <div className="empty">{children}</div>;
}
