/** Keys that work everywhere: `g` and a letter goes to a screen, `/` searches, `?` helps. They can be switched off. */

import { useNavigate } from "@tanstack/react-router";
import { Fragment, useEffect, useRef, useState } from "react";
import { Check } from "../kit/Check";
import { Dialog } from "../kit/Dialog";
import { focusRows } from "../kit/Table";
import { setPreferences, usePreferences } from "./preferences";
import { useScreens } from "./Shell";

const CHORD_MS = 1500;

export function useKeys() {
  const [open, setOpen] = useState(false);
  const navigate = useNavigate();
  const { keys } = usePreferences();
  const screens = useScreens();
  const begun = useRef(0);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (!keys || elsewhere(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      const screen = screens.find((each) => each.key === event.key);
      if (Date.now() - begun.current < CHORD_MS && screen) void navigate({ to: screen.path });
      else if (event.key === "?") setOpen(true);
      else if (event.key === "j" || event.key === "k") {
        if (!focusRows()) return;
      } else if (event.key === "/") document.querySelector<HTMLElement>("[data-search]")?.focus();
      else {
        begun.current = event.key === "g" ? Date.now() : 0;
        return;
      }
      begun.current = 0;
      event.preventDefault();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [keys, navigate, screens]);
  return { open, show: () => setOpen(true), close: () => setOpen(false) };
}

function elsewhere(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  // An open dialog has the keys to itself.
  if (document.querySelector("dialog[open]")) return true;
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

export function Help({ close }: { close: () => void }) {
  const { keys, density } = usePreferences();
  const screens = useScreens();
  return (
    <Dialog title="Keys" close={close}>
      {(end) => (
        <>
          <dl className="keys">
            {screens.map((screen) => (
              <Key key={screen.path} keys={["g", screen.key]} means={screen.title} />
            ))}
            <Key keys={["/"]} means="search on this screen" />
            <Key keys={["j", "k", "↵"]} means="to the rows; next and previous row, open it" />
            <Key keys={["Space"]} means="mark a job of a list" />
            <Key keys={["Esc"]} means="close, leave a field, mark none" />
          </dl>
          <p>
            <Check on={keys} set={(on) => setPreferences({ keys: on })}>
              single-key shortcuts
            </Check>
          </p>
          <p>
            <Check
              on={density === "comfortable"}
              set={(on) => setPreferences({ density: on ? "comfortable" : "compact" })}
            >
              more room between rows
            </Check>
          </p>
          <button type="button" onClick={end}>
            Close
          </button>
        </>
      )}
    </Dialog>
  );
}

function Key({ keys, means }: { keys: readonly string[]; means: string }) {
  return (
    <div>
      <dt>
        {keys.map((key) => (
          <Fragment key={key}>
            <kbd>{key}</kbd>{" "}
          </Fragment>
        ))}
      </dt>
      <dd>{means}</dd>
    </div>
  );
}
