/** What surrounds each screen: where one is, how fresh it is, who asks, and keys that go elsewhere. */

import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { useEffect } from "react";
import * as queries from "../api/queries";
import { Textures } from "../kit/QuotaBar";
import { Title } from "../kit/Title";
import { Banner } from "./Banner";
import { Clock } from "./Clock";
import { useFollowing, useLost } from "./freshness";
import { Help, useKeys } from "./keys";
import { setPreferences, usePreferences } from "./preferences";

const SCREENS = [
  { path: "/", title: "Overview", key: "o" },
  { path: "/queues", title: "Queues", key: "q" },
  { path: "/jobs", title: "Jobs", key: "j" },
  { path: "/topology", title: "Topology", key: "t" },
  { path: "/cycles", title: "Cycles", key: "c", needs: "readsCycles" },
  { path: "/fair-share", title: "Fair share", key: "s" },
  { path: "/edit", title: "Edit quotas", key: "e", needs: "mayChange" },
  { path: "/events", title: "Events", key: "v" },
  { path: "/audit", title: "Audit", key: "a", needs: "readsAudit" },
] as const;

/** Those that the reader may open: no menu leads to a closed door. */
export function useScreens() {
  const { data: me } = useQuery(queries.me());
  return SCREENS.filter((screen) => !("needs" in screen) || me?.[screen.needs]);
}

export function Shell() {
  useFollowing();
  const lost = useLost();
  const help = useKeys();
  const screens = useScreens();
  const path = useRouterState({ select: (state) => state.location.pathname });
  const screen = SCREENS.find((each) => (each.path === "/" ? path === "/" : path.startsWith(each.path)));
  useEffect(() => {
    document.title = screen ? `${screen.title} · Queuer` : "Queuer";
    const link = document.querySelector<HTMLElement>("nav [aria-current]");
    link?.parentElement?.scrollTo({ left: link.offsetLeft - link.parentElement.offsetWidth / 2 });
  }, [screen, screens.length]);
  return (
    <>
      <a className="skip" href="#main">
        Skip to content
      </a>
      <header className="bar-top">
        <Link to="/" className="brand">
          Queuer
        </Link>
        <nav aria-label="Screens">
          {screens.map(({ path: to, title }) => (
            <Link key={to} to={to} activeOptions={{ exact: to === "/" }} activeProps={{ "aria-current": "page" }}>
              {title}
            </Link>
          ))}
        </nav>
        <span className="spring" />
        <Clock />
        <Theme />
        <button type="button" className="quiet" onClick={help.show} aria-label="Keys and help">
          ?
        </button>
        <Who />
      </header>
      <Banner />
      <main id="main" tabIndex={-1} className={lost ? "aged" : ""}>
        <Outlet />
      </main>
      {help.open && <Help close={help.close} />}
      <Textures />
    </>
  );
}

/** An address that is no screen. */
export function Nowhere() {
  return (
    <>
      <Title>There is no such page</Title>
      <p>
        <code>{window.location.pathname}</code> is none of Queuer's screens. <Link to="/">Overview</Link>,{" "}
        <Link to="/queues">queues</Link> and <Link to="/jobs">jobs</Link> are good places to go on from.
      </p>
    </>
  );
}

function Theme() {
  const { theme } = usePreferences();
  const next = ({ system: "light", light: "dark", dark: "system" } as const)[theme];
  return (
    <button
      type="button"
      className="quiet"
      onClick={() => setPreferences({ theme: next })}
      aria-label={`Colours: ${theme}`}
    >
      {{ system: "◐", light: "○", dark: "●" }[theme]}
      <span className="word"> {theme}</span>
    </button>
  );
}

function Who() {
  const { data } = useQuery(queries.me());
  const { data: server } = useQuery(queries.meta());
  if (!data) return null;
  const open = server?.authentication.length === 0;
  return (
    <span className="who">
      <Link to="/me" className="who-name" title={[data.name, ...data.groups].join(", ")}>
        {data.name}
      </Link>
      {!open && (
        <form method="post" action="/logout">
          <button type="submit" className="quiet">
            log out
          </button>
        </form>
      )}
    </span>
  );
}
