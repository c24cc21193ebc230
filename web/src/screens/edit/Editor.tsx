/** Change the quota of a subtree: as a grid, or as the whole document. Nothing happens before its plan was seen. */

import { path, sh } from "../../text/shell";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { api, body } from "../../api/client";
import * as queries from "../../api/queries";
import { CopyAs } from "../../kit/CopyAs";
import { Filter } from "../../kit/Filter";
import { Heads } from "../../kit/Heads";
import { Empty, Panel, Trouble } from "../../kit/Panel";
import { Scroll } from "../../kit/Scroll";
import { Title } from "../../kit/Title";
import { short } from "../../text/quantity";
import {
  AMOUNTS,
  type Clash,
  type Document,
  changed,
  leftOut,
  merged,
  nothing,
  same,
  withAmount,
  withMine,
} from "./document";

/** Rows that are drawn before somebody asks for all. */
const MOST_ROWS = 60;

export function Editor() {
  const { root: asked, as } = useSearch({ from: "/edit" });
  const navigate = useNavigate({ from: "/edit" });
  const { data: me, isPending } = useQuery(queries.me());
  // Where nothing else is asked for it is what one may change.
  const root = asked ?? me?.administers[0] ?? "root";
  const query = useQuery({ ...queries.queueTree(root), enabled: asked !== undefined || !isPending });
  return (
    <>
      <Title hidden>Edit quotas</Title>
      <Panel
        title={`Quota of ${root} and below`}
        query={query}
        tools={
          <>
            <span className="choice" role="group" aria-label="Form">
              {(["grid", "text"] as const).map((form) => (
                <button
                  key={form}
                  type="button"
                  aria-pressed={(as ?? "grid") === form}
                  onClick={() => void navigate({ search: (old) => ({ ...old, as: form }), replace: true })}
                >
                  {form}
                </button>
              ))}
            </span>
            <CopyAs queuer={sh`export --root ${root}`} curl={path`/api/v1/queue-tree?root=${root}`} />
          </>
        }
      >
        {(base) => <Draft key={root} base={base as Document} asText={as === "text"} mine={me?.administers ?? []} />}
      </Panel>
    </>
  );
}

const draftKey = (root: string) => `queuer-draft-${root}`;

interface Kept {
  base: Document;
  mine: Document;
}

function kept(base: Document): Kept {
  try {
    return JSON.parse(sessionStorage.getItem(draftKey(base.root)) ?? "null") ?? { base, mine: base };
  } catch {
    return { base, mine: base };
  }
}

interface DraftProps {
  base: Document;
  asText: boolean;
  /** Queues that the reader may change, each with all below it. */
  mine: readonly string[];
}

function Draft({ base: newest, asText, mine: own }: DraftProps) {
  const [draft, setDraft] = useState(() => kept(newest));
  const [clashes, setClashes] = useState<readonly Clash[]>([]);
  const [wrong, setWrong] = useState("");
  // The text is written anew whenever the draft is another than the one that was typed.
  const [generation, setGeneration] = useState(0);
  const client = useQueryClient();
  const navigate = useNavigate();
  const { base, mine } = draft;
  useEffect(() => sessionStorage.setItem(draftKey(base.root), JSON.stringify(draft)), [base.root, draft]);
  const edit = (document: Document) => setDraft({ base, mine: document });
  const forget = () => {
    sessionStorage.removeItem(draftKey(base.root));
    setDraft({ base: newest, mine: newest });
    setClashes([]);
    setWrong("");
    setGeneration(generation + 1);
  };
  const plan = useMutation({
    mutationFn: async () => {
      // Whoever has changed the same queues meanwhile is not overwritten unseen.
      const theirs = (await client.fetchQuery({ ...queries.queueTree(base.root), staleTime: 0 })) as Document;
      const together = merged(base, mine, theirs);
      setDraft({ base: theirs, mine: together.document });
      setClashes(together.clashes);
      setGeneration((old) => old + 1);
      if (together.clashes.length) return null;
      return body(api.POST("/api/v1/changesets", { body: changed(theirs, together.document) }));
    },
    onSuccess: (planned) => {
      if (planned?.id) void navigate({ to: "/edit/$id", params: { id: planned.id } });
    },
  });
  const none = nothing(changed(base, mine));
  const left = leftOut(base, mine);
  return (
    <>
      {asText ? (
        <Text key={generation} document={mine} edit={edit} wrong={wrong} setWrong={setWrong} fixed={own.length === 0} />
      ) : (
        <Grid base={base} document={mine} edit={edit} own={own} />
      )}
      {clashes.length > 0 && (
        <Clashes
          clashes={clashes}
          document={mine}
          take={(clash) => {
            edit(withMine(mine, clash));
            setClashes(clashes.filter((each) => each !== clash));
            setGeneration(generation + 1);
          }}
        />
      )}
      {plan.error && <Trouble error={plan.error} />}
      {plan.data && !plan.data.id && <p role="status">It is so already: there is nothing to apply.</p>}
      {left.length > 0 && (
        <p className="soft">
          {left.join(", ")} {left.length === 1 ? "is" : "are"} left out of the text, and stays as it is. A file with{" "}
          <code>prune: true</code> deletes queues: <code>queuer apply -f</code>.
        </p>
      )}
      {own.length === 0 && <p>You may change no queue: ask who administers one.</p>}
      {own.length > 0 && (
        <p className="row edit-actions">
          <button
            type="button"
            className="main"
            disabled={none || plan.isPending || (asText && wrong !== "")}
            onClick={() => plan.mutate()}
          >
            {plan.isPending ? "planning" : "Preview"}
          </button>
          <button type="button" disabled={none} onClick={forget}>
            Start over
          </button>
          <span className="soft">
            {none
              ? "Nothing is changed yet."
              : `Changed: ${Object.keys(changed(base, mine).queues).join(", ") || "flavors or topology"}.`}
          </span>
        </p>
      )}
    </>
  );
}

interface ClashesProps {
  clashes: readonly Clash[];
  document: Document;
  take: (clash: Clash) => void;
}

function Clashes({ clashes, document, take }: ClashesProps) {
  return (
    <div className="trouble" role="alert">
      <p>
        <strong>Somebody has changed the same meanwhile.</strong> Theirs stands above, with all else that you changed.
      </p>
      <table className="plain">
        <thead>
          <tr>
            {["queue", "what", "was", "theirs", "yours"].map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
            <td />
          </tr>
        </thead>
        <tbody>
          {clashes.map((clash) => (
            <tr key={clash.path + clash.key + clash.at?.index + clash.at?.field}>
              <th scope="row">{clash.path}</th>
              <td>
                {clash.at
                  ? `${clash.at.field} ${short(document.queues[clash.path]?.quota?.[clash.at.index]?.resource ?? "")}`
                  : clash.key}
              </td>
              {[clash.was, clash.theirs, clash.mine].map((value, index) => (
                <td key={index}>{stated(value)}</td>
              ))}
              <td>
                <button type="button" onClick={() => take(clash)}>
                  Use mine
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A value of the document, as people write it. */
function stated(value: unknown): string {
  if (value === undefined) return "none";
  if (Array.isArray(value)) return value.map(stated).join("; ");
  if (typeof value !== "object" || value === null) return String(value);
  return Object.entries(value)
    .map(([name, each]) => `${name} ${stated(each)}`)
    .join(", ");
}

interface FormProps {
  document: Document;
  edit: (document: Document) => void;
}

function Grid({ base, document, edit, own }: FormProps & { base: Document; own: readonly string[] }) {
  const rows = Object.entries(document.queues).flatMap(([path, stated]) =>
    (stated.quota ?? []).map((row, index) => ({ path, row, index })),
  );
  const [find, setFind] = useState("");
  const [all, setAll] = useState(false);
  if (rows.length === 0) return <Empty>No queue here states a quota. Write one as text.</Empty>;
  const edited = (path: string) => !same(document.queues[path]?.quota, base.queues[path]?.quota);
  const found = rows.filter(({ path }) => path.includes(find));
  // What was edited stays in sight.
  const shown = found.filter(({ path }, at) => all || at < MOST_ROWS || edited(path));
  return (
    <>
      {rows.length > MOST_ROWS && (
        <p className="row">
          <Filter label="queue" search value={find} set={setFind} />
          <span className="soft" role="status">
            {shown.length} of {rows.length} rows
          </span>
          {shown.length < found.length && (
            <button type="button" onClick={() => setAll(true)}>
              Show all
            </button>
          )}
        </p>
      )}
      <Scroll label="Rows of quota">
        <table className="plain">
          <Heads titles={["queue", "resource", ...AMOUNTS]} />
          <tbody>
            {shown.map(({ path, row, index }) => (
              <tr key={`${path}${index}`}>
                <th scope="row">{path}</th>
                <td title={row.resource}>
                  {short(row.resource)} {row.flavor && <small>{row.flavor}</small>}
                </td>
                {AMOUNTS.map((field) => {
                  const was = base.queues[path]?.quota?.[index]?.[field];
                  const is = row[field];
                  if (!own.some((above) => `${path}.`.startsWith(`${above}.`)))
                    return <td key={field}>{is === undefined ? (field === "lend" ? "all" : "none") : String(is)}</td>;
                  return (
                    <td key={field}>
                      <input
                        size={10}
                        aria-label={`${field} ${row.resource} of ${path}`}
                        value={is === undefined ? "" : String(is)}
                        placeholder={field === "lend" ? "all" : "none"}
                        className={String(was ?? "") === String(is ?? "") ? undefined : "edited"}
                        onChange={(event) => edit(withAmount(document, path, index, field, event.target.value.trim()))}
                      />
                      {String(was ?? "") !== String(is ?? "") && (
                        <small> was {was === undefined ? "none" : String(was)}</small>
                      )}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

interface TextProps extends FormProps {
  wrong: string;
  setWrong: (wrong: string) => void;
  /** It is to be read alone. */
  fixed: boolean;
}

function Text({ document, edit, wrong, setWrong, fixed }: TextProps) {
  const [text, setText] = useState<string>();
  useEffect(() => {
    void import("yaml").then((yaml) => setText(yaml.stringify(document, { aliasDuplicateObjects: false })));
  }, []); // eslint-disable-line react-hooks/exhaustive-deps
  const write = (written: string) => {
    setText(written);
    void import("yaml").then((yaml) => {
      try {
        const read: unknown = yaml.parse(written);
        if (typeof read !== "object" || read === null || !("queues" in read) || typeof read.queues !== "object")
          throw new Error("the document names no queues");
        if ("prune" in read) throw new Error("prune is not taken here: use queuer apply -f");
        edit(read as Document);
        setWrong("");
      } catch (error) {
        setWrong(error instanceof Error ? error.message : String(error));
      }
    });
  };
  if (text === undefined) return null;
  return (
    <>
      <textarea
        className="document"
        aria-label="QueueTree document"
        aria-invalid={wrong !== ""}
        spellCheck={false}
        readOnly={fixed}
        rows={Math.min(34, text.split("\n").length + 2)}
        value={text}
        onChange={(event) => write(event.target.value)}
      />
      {wrong && <p className="trouble">{wrong}</p>}
    </>
  );
}
