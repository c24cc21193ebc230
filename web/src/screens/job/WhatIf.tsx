/** "What if it asked for less, or elsewhere?": answered by the decision itself; nothing is reserved or written. */

import { sh } from "../../text/shell";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, body } from "../../api/client";
import type { Simulation, WorkloadDetail } from "../../api/schema";
import { CopyAs } from "../../kit/CopyAs";
import { Part, Trouble } from "../../kit/Panel";
import { Why } from "../../kit/Why";
import { amount, short } from "../../text/quantity";

const ANSWERS: Record<Simulation["answer"], string> = {
  starts: "It would start now",
  evicts: "It would start after evictions",
  waits: "It would wait",
  unstartable: "It could never start",
};

export function WhatIf({ job }: { job: WorkloadDetail }) {
  const largest = job.podSets.reduce((most, set) => (set.count > most.count ? set : most), job.podSets[0]!);
  const device = Object.keys(largest?.requests ?? {}).find((name) => name.includes("/")) ?? "cpu";
  const [gang, setGang] = useState({
    each: String(amount(largest?.requests[device]) || 1),
    count: String(largest?.count ?? 1),
    queue: job.queue,
    level: job.required ?? "",
    priority: String(job.override?.priority?.value ?? job.priority),
  });
  // What else a pod asks for stays as it is.
  const others = Object.entries(largest?.requests ?? {}).filter(([name]) => name !== device && name !== "pods");
  const rest = others.map(([name, value]) => `,${name}:${value}`).join("");
  const shape = `${gang.count}x${device}:${gang.each}${rest}`;
  const ask = useMutation({
    mutationFn: () =>
      body(
        api.POST("/api/v1/simulations", {
          body: {
            shape,
            queue: gang.queue,
            namespace: job.namespace,
            priority: Number(gang.priority),
            ...(gang.level && { required: gang.level }),
          },
        }),
      ),
  });
  const field = (name: keyof typeof gang, label: string, size: number) => (
    <label>
      {label}{" "}
      <input value={gang[name]} size={size} onChange={(event) => setGang({ ...gang, [name]: event.target.value })} />
    </label>
  );
  return (
    <Part
      title="What if"
      tools={
        <CopyAs
          queuer={
            sh`sim shape ${shape} -q ${gang.queue} -n ${job.namespace} --priority=${gang.priority}` +
            (gang.level && sh` --level ${gang.level}`)
          }
        />
      }
    >
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault();
          ask.mutate();
        }}
      >
        {field("count", "pods", 5)}
        {field("each", `${short(device)} each`, 5)}
        {field("level", "in one", 8)}
        {field("priority", "priority", 7)}
        {field("queue", "queue", 26)}
        <button type="submit" className="main" disabled={ask.isPending}>
          {ask.isPending ? "asking" : "Would it start?"}
        </button>
      </form>
      <div aria-live="polite">
        {ask.error && <Trouble error={ask.error} />}
        {ask.data && <Said of={ask.data} />}
      </div>
    </Part>
  );
}

function Said({ of }: { of: Simulation }) {
  return (
    <div className="answer">
      <p>
        <b>{ANSWERS[of.answer]}.</b> {of.primary && <Why of={of.primary} />}
      </p>
      {of.places?.map((place) => (
        <p key={place.podSet + place.flavor}>
          {place.count} × {place.podSet} on {Object.keys(place.nodes).slice(0, 6).join(", ")}
          {Object.keys(place.nodes).length > 6 && ` and ${Object.keys(place.nodes).length - 6} more`}
        </p>
      ))}
      {of.evictions?.map((leaving) => (
        <p key={leaving.queue}>
          {leaving.gangs} {leaving.gangs === 1 ? "job" : "jobs"} of {leaving.queue} would be evicted.
        </p>
      ))}
      <p className="soft">{of.label}</p>
    </div>
  );
}
