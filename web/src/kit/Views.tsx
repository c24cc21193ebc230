/** Ways to look at a list that a reader has named. Each is what its address says, kept in this browser alone. */

import { type FormEvent, useState } from "react";
import { type View, setPreferences, usePreferences } from "../app/preferences";
import { Chooser } from "./Chooser";

interface Props {
  /** What the address says now. */
  now: View;
  go: (view: View) => void;
}

export function Views({ now, go }: Props) {
  const { views } = usePreferences();
  const [name, setName] = useState("");
  const save = (event: FormEvent) => {
    event.preventDefault();
    setPreferences({ views: { ...views, [name.trim()]: now } });
    setName("");
  };
  const forget = (name: string) => {
    const { [name]: _, ...others } = views;
    setPreferences({ views: others });
  };
  return (
    <Chooser title="views" label="Views">
      {Object.entries(views).map(([name, view]) => (
        <span key={name} className="row view">
          <button type="button" className="quiet" onClick={() => go(view)}>
            {name}
          </button>
          <button type="button" className="quiet" aria-label={`Forget the view ${name}`} onClick={() => forget(name)}>
            ✕
          </button>
        </span>
      ))}
      <form className="row" onSubmit={save}>
        <input
          aria-label="Name of this view"
          placeholder="name of this view"
          value={name}
          maxLength={40}
          size={18}
          onChange={(event) => setName(event.target.value)}
        />
        <button type="submit" disabled={!name.trim()}>
          Save
        </button>
      </form>
    </Chooser>
  );
}
