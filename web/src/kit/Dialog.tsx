/** A question in front of the page: the focus stays inside, Escape closes it, and where one was has the focus again. */

import { type ReactNode, useEffect, useId, useRef } from "react";

interface Props {
  title: string;
  close: () => void;
  /** Closing by `end` gives the focus back; taking the dialog away does not. */
  children: (end: () => void) => ReactNode;
}

export function Dialog({ title, close, children }: Props) {
  const id = useId();
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (!element.current?.open) element.current?.showModal();
  }, []);
  return (
    <dialog ref={element} onClose={close} aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {children(() => element.current?.close())}
    </dialog>
  );
}
