import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Ago } from "../kit/Ago";
import { HealthSheet } from "./HealthSheet";
import { setPaused, useFreshness } from "./freshness";
import { probe, useHealth } from "./health";

/** The lamp: whether what is shown is live and somebody decides. Beside it the newest cycle, and the button that stops all changes. */
export function Clock() {
  const { paused, missed } = useFreshness();
  const [open, setOpen] = useState(false);
  const [worst] = useHealth();
  const { data, dataUpdatedAt } = useQuery(probe());
  const age = data?.cycleAgeSeconds ?? null;
  const level = worst?.level ?? "good";
  const halted = paused && level === "good";
  return (
    <span className="clock">
      <span role="status">
        <button type="button" className="quiet lamp" aria-haspopup="dialog" onClick={() => setOpen(true)}>
          <span className={`dot dot-${halted ? "paused" : level}`} aria-hidden="true" />
          {halted ? `paused${missed ? " – there is news" : ""}` : worst?.word}
        </button>
      </span>
      {data?.cycle != null && (
        <span className="clock-cycle">
          {"cycle "}
          {data.cycle}
          {" · "}
          <Ago at={age === null ? null : new Date(dataUpdatedAt - age * 1000).toISOString()} />
        </span>
      )}
      <button type="button" className="quiet" aria-pressed={paused} onClick={() => setPaused(!paused)}>
        {paused ? "Resume" : "Pause"}
      </button>
      {open && <HealthSheet close={() => setOpen(false)} />}
    </span>
  );
}
