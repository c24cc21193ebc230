"""Connections to a server whose certificate is verified, as the chart asks for by default."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy import text

from queuer.domain.errors import Unavailable
from queuer.local import postgres
from queuer.store import migrate
from queuer.store.engine import DatabaseUnavailable, begin, conninfo, make_engine
from queuer.store.leader import lead

NAME = "localhost"
"""In the server's certificate; 127.0.0.1 is not."""


Authority = tuple[x509.Name, ec.EllipticCurvePrivateKey]


def _certified(name: str, *, by: Authority | None = None) -> tuple[bytes, bytes, Authority]:
    """A certificate for a host by an authority, or an authority's own: certificate and key in PEM, and who it is."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = by or (subject, key)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject).issuer_name(issuer).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(signer, hashes.SHA256())
    )  # fmt: skip
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), pem, (subject, key)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder that the server's account may enter."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="queuer-tls-", dir=memory if memory.is_dir() else None))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[postgres.Server]:
    """A server that speaks TLS alone, by a certificate for NAME. `home` has its authority and another."""
    certificate, _, authority = _certified("authority")
    (home / "authority.crt").write_bytes(certificate)
    (home / "stranger.crt").write_bytes(_certified("stranger")[0])
    served, secret, _ = _certified(NAME, by=authority)
    started = postgres.start(home / "server", fsync=False)
    data = home / "server" / "data"
    owner = data.stat()
    for file, body in (("server.crt", served), ("server.key", secret)):
        (data / file).write_bytes(body)
        (data / file).chmod(0o600)
        shutil.chown(data / file, owner.st_uid, owner.st_gid)
    hba = (data / "pg_hba.conf").read_text()
    (data / "pg_hba.conf").write_text(
        "\n".join(line.replace("host ", "hostssl ", 1) for line in hba.splitlines())
    )
    try:
        with psycopg.connect(conninfo(started.url), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET ssl = on")
            connection.execute("SELECT pg_reload_conf()")
        migrate.upgrade(started.url)
        yield started
    finally:
        started.stop()


@pytest.fixture
def verified(server: postgres.Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of the Secret; how it is verified is in the environment, as the chart has it."""
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", str(home / "authority.crt"))
    return server.url.replace("127.0.0.1", NAME)


async def test_a_server_whose_certificate_has_the_name_is_taken(verified: str) -> None:
    """By the pool, by migrations and by the leader's own session."""
    migrate.check(verified)
    engine = make_engine(verified, name="test")
    try:
        async with begin(engine) as connection:
            used = text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
            assert (await connection.execute(used)).scalar_one()
    finally:
        await engine.dispose()
    async with lead(verified, holder="me") as leadership:
        assert leadership.epoch > 0


def test_another_name_is_refused_with_the_setting(verified: str) -> None:
    with pytest.raises(Unavailable, match="does not match host name") as refused:
        migrate.check(verified.replace(NAME, "127.0.0.1"))
    assert "into QUEUER_DATABASE_URL; sslmode=verify-full" in str(refused.value)


def test_another_authority_is_refused_with_the_setting(
    verified: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLROOTCERT", str(home / "stranger.crt"))
    with pytest.raises(Unavailable, match="certificate verify failed") as refused:
        migrate.check(verified)
    assert "PGSSLROOTCERT or `database.ca`" in str(refused.value)


def test_a_server_that_is_gone_ends_a_term_as_any_loss_of_the_database_does() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        with pytest.raises(DatabaseUnavailable, match="refused"):
            migrate.check(f"postgresql://queuer@127.0.0.1:{taken.getsockname()[1]}/queuer")
