import { useState } from "react";
import { quoted } from "../text/shell";
import { Chooser } from "./Chooser";

interface Commands {
  /** The command line's words after `queuer`. */
  queuer?: string;
  /** A path of the API. */
  curl?: string;
  kubectl?: string;
}

/** How the same answer is had from a terminal: one word in the head, whatever number of ways there is. */
export function CopyAs({ queuer, curl, kubectl }: Commands) {
  const ways = {
    queuer: queuer && `queuer ${queuer}`,
    kubectl: kubectl && `kubectl ${kubectl}`,
    curl: curl && `curl -H "Authorization: Bearer $QUEUER_TOKEN" ${quoted(window.location.origin + curl)}`,
  };
  return (
    <Chooser title="copy as" label="Copy as">
      {Object.entries(ways).map(([label, text]) => text && <Copy key={label} label={label} text={text} />)}
    </Chooser>
  );
}

export function Copy({ label, text }: { label: string; text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    void toClipboard(text).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    });
  };
  return (
    <button type="button" className="quiet" title={text} onClick={copy} aria-description={text}>
      {copied ? "copied" : `copy ${label}`}
    </button>
  );
}

/** A command to read and to copy. */
export function Command({ text }: { text: string }) {
  return (
    <span className="command">
      <code>{text}</code>
      <Copy label="command" text={text} />
    </span>
  );
}

/** Pages over plain http have no clipboard of their own, but what is selected can be copied. */
async function toClipboard(text: string): Promise<void> {
  if (window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
