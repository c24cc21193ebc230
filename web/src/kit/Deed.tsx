/** Asks before a deed: what it means, and a reason for the audit; then says what became of it. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useRef, useState } from "react";
import { newKey } from "../api/key";
import { Dialog } from "./Dialog";
import { Trouble } from "./Panel";

interface Props<T> {
  /** The verb, as its button says it. */
  verb: string;
  /** What it is done to. */
  to: string;
  means: ReactNode;
  /** What else is asked for, above the reason. */
  fields?: ReactNode;
  /** The button's words while it is done. */
  busy?: string;
  /** `key`: the same however often one deed is sent. */
  act: (said: { reason: string; key: string }) => Promise<T>;
  done: (answer: T) => ReactNode;
  close: () => void;
}

export function Deed<T>({ verb, to, means, fields, busy = verb, act, done, close }: Props<T>) {
  const [reason, setReason] = useState("");
  const key = useRef(newKey());
  const client = useQueryClient();
  const deed = useMutation({
    mutationFn: () => act({ reason, key: key.current }),
    onSettled: () => void client.invalidateQueries(),
  });
  const answered = deed.data !== undefined;
  return (
    <Dialog title={`${verb} ${to}?`} close={close}>
      {(end) => (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            deed.mutate();
          }}
        >
          <div>{means}</div>
          {!answered && (
            <>
              {fields}
              <label className="field">
                Reason, for the audit
                <input value={reason} onChange={(event) => setReason(event.target.value)} size={48} />
              </label>
            </>
          )}
          {deed.error && <Trouble error={deed.error} />}
          <div role="status">{deed.data !== undefined && done(deed.data)}</div>
          <p className="row">
            {answered ? (
              <button key="close" type="button" className="main" autoFocus onClick={end}>
                Close
              </button>
            ) : (
              <>
                <button type="submit" className="main" disabled={deed.isPending}>
                  {deed.isPending ? busy : verb}
                </button>
                <button type="button" onClick={end}>
                  Cancel
                </button>
              </>
            )}
          </p>
        </form>
      )}
    </Dialog>
  );
}
