/** A slider over the past. The moment is asked for when the hand rests; `now` goes back to what is live. */

import { useEffect, useState } from "react";
import { useNow } from "../app/now";
import { RANGES, momentAt, rangeOf, stepsBack } from "./past";
import { clock } from "../text/time";

const REST_MS = 200;

interface Props {
  /** The moment that is looked at; undefined: now. */
  at: string | undefined;
  set: (at: string | undefined) => void;
}

export function Scrubber({ at, set }: Props) {
  const now = useNow();
  const [wide, setWide] = useState<string>();
  const range = RANGES.find((each) => each.name === wide) ?? rangeOf(at, now);
  const [dragged, setDragged] = useState<number>();
  const most = range.seconds / range.step;
  const back = dragged ?? stepsBack(at, range, now);
  const moment = dragged === undefined ? at : momentAt(dragged, range, now);
  useEffect(() => {
    if (dragged === undefined) return;
    const timer = setTimeout(() => {
      set(momentAt(dragged, range, new Date()));
      setDragged(undefined);
    }, REST_MS);
    return () => clearTimeout(timer);
  }, [dragged]); // eslint-disable-line react-hooks/exhaustive-deps
  const words = moment ? clock(moment, now) : "now";
  return (
    <div className="scrubber">
      <label className="row">
        as of
        <input
          type="range"
          min={-most}
          max={0}
          step={1}
          value={-back}
          aria-valuetext={words}
          onChange={(event) => setDragged(-Number(event.target.value))}
        />
      </label>
      <span>{words}</span>
      <span className="choice" role="group" aria-label="How far back">
        {RANGES.map(({ name }) => (
          <button key={name} type="button" aria-pressed={name === range.name} onClick={() => setWide(name)}>
            {name}
          </button>
        ))}
      </span>
      <button type="button" disabled={!moment} onClick={() => set(undefined)}>
        now
      </button>
    </div>
  );
}
