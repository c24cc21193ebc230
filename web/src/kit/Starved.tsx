import { Ago } from "./Ago";
import { Chip } from "./Chip";

/** That others borrow what the next job of a queue is guaranteed, and for how long, where that is known. */
export function Starved({ since }: { since: string | null }) {
  return (
    <Chip
      word="starved"
      label={
        <>
          starved{" "}
          {since && (
            <>
              for <Ago at={since} />
            </>
          )}
        </>
      }
    />
  );
}
