/** Keys that work everywhere: `g` and a letter goes to a screen, `/` searches, `?` helps. They can be switched off. */

import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { setPreferences, usePreferences } from "./preferences";
import { SCREENS } from "./Shell";

const CHORD_MS = 1500;

export function useKeys() {
  const [open, setOpen] = useState(false);
  const navigate = useNavigate();
  const { keys } = usePreferences();
  const begun = useRef(0);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (!keys || typing(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      const screen = SCREENS.find((each) => each.key === event.key);
      if (Date.now() - begun.current < CHORD_MS && screen) void navigate({ to: screen.path });
      else if (event.key === "?") setOpen(true);
      else if (event.key === "/") document.querySelector<HTMLElement>("[data-search]")?.focus();
      else {
        begun.current = event.key === "g" ? Date.now() : 0;
        return;
      }
      begun.current = 0;
      event.preventDefault();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [keys, navigate]);
  return { open, show: () => setOpen(true), close: () => setOpen(false) };
}

function typing(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

export function Help({ open, close }: { open: boolean; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const { keys, density } = usePreferences();
  useEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="help-title">
      <h2 id="help-title">Keys</h2>
      <dl className="keys">
        {SCREENS.map((screen) => (
          <div key={screen.path}>
            <dt>
              <kbd>g</kbd> <kbd>{screen.key}</kbd>
            </dt>
            <dd>{screen.title}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>/</kbd>
          </dt>
          <dd>search on this screen</dd>
        </div>
        <div>
          <dt>
            <kbd>j</kbd> <kbd>k</kbd> <kbd>↵</kbd>
          </dt>
          <dd>next and previous row, open it</dd>
        </div>
        <div>
          <dt>
            <kbd>Esc</kbd>
          </dt>
          <dd>close</dd>
        </div>
      </dl>
      <p>
        <label>
          <input type="checkbox" checked={keys} onChange={(event) => setPreferences({ keys: event.target.checked })} />{" "}
          single-key shortcuts
        </label>
      </p>
      <p>
        <label>
          <input
            type="checkbox"
            checked={density === "comfortable"}
            onChange={(event) => setPreferences({ density: event.target.checked ? "comfortable" : "compact" })}
          />{" "}
          more room between rows
        </label>
      </p>
      <button type="button" onClick={close}>
        Close
      </button>
    </dialog>
  );
}
