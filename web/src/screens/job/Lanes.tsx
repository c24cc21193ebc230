/** A job's life as lanes over one scale of time: its states, why it waited, and the cycles that decided. */

import { path } from "../../text/shell";
import { useQuery } from "@tanstack/react-query";
import { useRef } from "react";
import * as queries from "../../api/queries";
import type { Timeline } from "../../api/schema";
import { useNow } from "../../app/now";
import { At } from "../../kit/Ago";
import { CopyAs } from "../../kit/CopyAs";
import { Heads } from "../../kit/Heads";
import { Panel } from "../../kit/Panel";
import { scaled } from "../../kit/rem";
import { useWidth } from "../../kit/width";
import { exact, span } from "../../text/time";

export function Lanes({ uid }: { uid: string }) {
  const query = useQuery(queries.timeline(uid));
  return (
    <Panel title="Timeline" query={query} tools={<CopyAs curl={path`/api/v1/workloads/${uid}/timeline`} />}>
      {(data) => (
        <>
          <Drawn of={data} />
          <details>
            <summary>as a table</summary>
            <Listed of={data} />
          </details>
        </>
      )}
    </Panel>
  );
}

/** Per cent of the lane that a span is wide at least. */
const LEAST = 0.3;
/** Pixels that a letter takes, at the usual size of text. */
const LETTER = 7;

function Drawn({ of }: { of: Timeline }) {
  const now = useNow().getTime();
  const frame = useRef<HTMLDivElement>(null);
  const width = useWidth(frame);
  const begins = Date.parse(of.submitted);
  const over = of.spans.at(-1);
  // What has ended does not stretch its picture any more.
  const ended = over && (over.state === "Succeeded" || over.state === "Failed");
  const last = ended ? Date.parse(over.from) : now;
  const whole = Math.max(1000, last - begins);
  const place = (from: string, to: string | null) => {
    const left = Math.min(100 - LEAST, ((Date.parse(from) - begins) / whole) * 100);
    const right = Math.min(100, (((to === null ? last : Date.parse(to)) - begins) / whole) * 100);
    return { left: `${left}%`, width: `${Math.max(LEAST, right - left)}%` };
  };
  /** Whether a word is worth beginning in a part of the lane: first letters alone say nothing. */
  const fits = (word: string, seconds: number) =>
    (seconds / (whole / 1000)) * width > scaled(LETTER) * Math.min(word.length, 8);
  return (
    <div ref={frame} className="lanes" aria-hidden="true">
      <span>state</span>
      <div className="lane">
        {(ended ? of.spans.slice(0, -1) : of.spans).map((each) => (
          <i
            key={each.from + each.state}
            className={`span chip-${each.state.toLowerCase()}`}
            style={place(each.from, each.to)}
            title={`${each.state} ${span(each.seconds)} from ${exact(each.from)}`}
          >
            {fits(each.state, each.seconds) && each.state}
          </i>
        ))}
      </div>
      <span>why</span>
      <div className="lane">
        {of.reasons.map((each) => (
          <i
            key={each.from + each.token}
            className="span span-reason"
            style={place(each.from, each.to)}
            title={`${each.token} ${span(each.seconds)}: ${each.text}`}
          >
            {fits(each.token, each.seconds) && each.token}
          </i>
        ))}
      </div>
      <span>cycles</span>
      <div className="lane lane-ticks">
        {of.ticks.map((tick) => (
          <b
            key={tick.cycle}
            style={{ left: place(tick.at, tick.at).left }}
            title={`cycle ${tick.cycle}: ${tick.decision}`}
          />
        ))}
      </div>
      <span />
      <div className="lane-scale">
        <small>
          <At at={of.submitted} />
        </small>
        <small>{span(whole / 1000)}</small>
        <small>{ended ? <At at={new Date(last).toISOString()} /> : "now"}</small>
      </div>
    </div>
  );
}

function Listed({ of }: { of: Timeline }) {
  return (
    <table className="plain">
      <Heads titles={["from", "what", "for"]} numbers={["for"]} />
      <tbody>
        {[
          ...of.spans.map((each) => ({ ...each, what: each.cause ? `${each.state}: ${each.cause}` : each.state })),
          ...of.reasons.map((each) => ({ ...each, what: `${each.token}: ${each.text}` })),
        ]
          .sort((one, other) => one.from.localeCompare(other.from))
          .map((each) => (
            <tr key={each.from + each.what}>
              <td>
                <At at={each.from} />
              </td>
              <td>{each.what}</td>
              <td className="number">{span(each.seconds)}</td>
            </tr>
          ))}
      </tbody>
      <tfoot>
        <tr>
          <td colSpan={2}>waited in all</td>
          <td className="number">{span(of.waitedSeconds)}</td>
        </tr>
      </tfoot>
    </table>
  );
}
