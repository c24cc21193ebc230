import type { Reason } from "../api/schema";
import { Chip } from "./Chip";

/** Why a job waits. A verdict is shown where somebody has to act; of a mere wait the token and the sentence say it. */
export function Why({ of: { verdict, token, text } }: { of: Pick<Reason, "verdict" | "token" | "text"> }) {
  return (
    <>
      {verdict !== "WAIT" && <Chip word={verdict} />} <b>{token}</b> {text}
    </>
  );
}
