/** What the lamp in the header stands for: how each part is, since when, and what to do. */

import { Command } from "../kit/CopyAs";
import { Dialog } from "../kit/Dialog";
import { loginAddress } from "../kit/Panel";
import { clock } from "../text/time";
import { type Level, useHealth } from "./health";
import { useNow } from "./now";

const STATES: Record<Level, string> = { good: "well", wait: "waits", bad: "act" };

export function HealthSheet({ close }: { close: () => void }) {
  const parts = useHealth();
  const now = useNow();
  return (
    <Dialog title="Health" close={close}>
      {(end) => (
        <>
          <ul className="list">
            {parts.map((part) => (
              <li key={part.name}>
                <p>
                  <span className={`dot dot-${part.level}`} aria-hidden="true" /> <b>{part.name}</b>{" "}
                  <small>
                    {STATES[part.level]}
                    {part.since && `, since ${clock(part.since, now)}`}
                  </small>
                </p>
                <p>{part.text}</p>
                {part.act && (
                  <p className="soft">
                    {part.act} {part.command && <Command text={part.command} />}
                    {part.name === "login" && <a href={loginAddress()}>Log in again</a>}
                  </p>
                )}
              </li>
            ))}
          </ul>
          <p className="row">
            <button type="button" onClick={end}>
              Close
            </button>
          </p>
        </>
      )}
    </Dialog>
  );
}
