//! Rows ↔ domain, for this store. Nothing else here names both.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::error::error;
use crate::ledger::stored::{self, StoredReplica, StoredRevision};
use crate::ledger::{
    CardKept, Entry, Error, Head, Liveness, PriorRequest, Replica, Revision, Seen, SeenRevision, chain,
};
use crate::terms::{Digest, Timestamp};

fn unreadable(error: sqlx::Error) -> Error {
    self::error("read a row", &error)
}

/// The ledger and its last entry, if any, and the digest at a sequence number where one was asked for.
struct SqliteHead {
    ledger_id: String,
    seq: Option<i64>,
    digest: Option<Vec<u8>>,
}

pub(super) fn head(row: &SqliteRow) -> Result<(String, Head), Error> {
    let read = || {
        Ok(SqliteHead {
            ledger_id: row.try_get("ledger_id")?,
            seq: row.try_get("seq")?,
            digest: row.try_get("digest")?,
        })
    };
    let row: SqliteHead = read().map_err(unreadable)?;
    let head = match (row.seq, &row.digest) {
        (Some(seq), Some(digest)) => Head { seq: stored::number(seq)?, digest: stored::digest(digest)? },
        _ => Head { seq: 0, digest: chain::origin(&row.ledger_id) },
    };
    Ok((row.ledger_id, head))
}

pub(super) fn digest_at(row: &SqliteRow, ledger_id: &str, asked: u64) -> Result<Option<Digest>, Error> {
    let bytes: Option<Vec<u8>> = row.try_get("digest_at_asked").map_err(unreadable)?;
    match bytes {
        Some(bytes) => Ok(Some(stored::digest(&bytes)?)),
        None if asked == 0 => Ok(Some(chain::origin(ledger_id))),
        None => Ok(None),
    }
}

/// The service clock.
pub(super) fn service(row: &SqliteRow) -> Result<Duration, Error> {
    stored::duration(row.try_get("elapsed").map_err(unreadable)?)
}

struct SqliteEntry {
    seq: i64,
    digest: Vec<u8>,
    body_digest: Vec<u8>,
    body: String,
    card: Option<Vec<u8>>,
}

/// An entry, with its card where the query asked for it.
pub(super) fn entry(row: &SqliteRow, with_card: bool) -> Result<Entry, Error> {
    let read = || {
        Ok(SqliteEntry {
            seq: row.try_get("seq")?,
            digest: row.try_get("digest")?,
            body_digest: row.try_get("body_digest")?,
            body: row.try_get("body")?,
            card: if with_card { row.try_get("card")? } else { None },
        })
    };
    let row: SqliteEntry = read().map_err(unreadable)?;
    Ok(Entry {
        seq: stored::number(row.seq)?,
        digest: stored::digest(&row.digest)?,
        body_digest: stored::digest(&row.body_digest)?,
        body: row.body.into(),
        card: row.card.map(|bytes| CardKept::Bytes(bytes.into())),
    })
}

pub(super) fn revision(row: &SqliteRow) -> Result<Revision, Error> {
    let read = || {
        Ok(StoredRevision {
            namespace: row.try_get("namespace")?,
            name: row.try_get("name")?,
            revision: row.try_get("revision")?,
            seq: row.try_get("seq")?,
            digest: row.try_get("digest")?,
            body: row.try_get("body")?,
            kind: row.try_get("kind")?,
            change: row.try_get("change")?,
        })
    };
    read().map_err(unreadable)?.into_revision()
}

pub(super) fn replica(row: &SqliteRow) -> Result<Replica, Error> {
    let read = || {
        Ok(StoredReplica {
            replica: row.try_get("replica")?,
            role: row.try_get("role")?,
            seq: row.try_get("seq")?,
            tag: row.try_get("tag")?,
            staleness_us: row.try_get("staleness_us")?,
            hops: row.try_get("hops")?,
            version: row.try_get("version")?,
            via: row.try_get("via")?,
            omitted: row.try_get("omitted")?,
            omitted_seq: row.try_get("omitted_seq")?,
            omitted_tag: row.try_get("omitted_tag")?,
            silent_us: row.try_get("silent_us")?,
        })
    };
    read().map_err(unreadable)?.into_replica()
}

struct SqliteLiveness {
    namespace: String,
    name: String,
    revision: i64,
    origin_confirmed_at: i64,
    registers: String,
    ttl: Option<i64>,
    confirmed_service: i64,
}

pub(super) fn liveness(row: &SqliteRow) -> Result<Liveness, Error> {
    let read = || {
        Ok(SqliteLiveness {
            namespace: row.try_get("namespace")?,
            name: row.try_get("name")?,
            revision: row.try_get("revision")?,
            origin_confirmed_at: row.try_get("origin_confirmed_at")?,
            registers: row.try_get("registers")?,
            ttl: row.try_get("ttl")?,
            confirmed_service: row.try_get("confirmed_service")?,
        })
    };
    let row: SqliteLiveness = read().map_err(unreadable)?;
    Ok(Liveness {
        agent: stored::agent(&row.namespace, &row.name)?,
        revision: stored::number(row.revision)?,
        origin_confirmed_at: Timestamp::from_micros(row.origin_confirmed_at),
        registers: registers(Some(&row.registers))?,
        lease: stored::lease(row.ttl, row.confirmed_service)?,
    })
}

fn registers(text: Option<&str>) -> Result<Vec<Timestamp>, Error> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let micros: Vec<i64> = serde_json::from_str(text)
        .map_err(|error| Error::Corrupt(format!("registers cannot be read: {error}")))?;
    Ok(micros.into_iter().map(Timestamp::from_micros).collect())
}

/// Registers as they are stored.
pub(super) fn registers_to_json(times: &[Timestamp]) -> String {
    let micros: Vec<i64> = times.iter().map(|time| time.as_micros()).collect();
    serde_json::Value::from(micros).to_string()
}

/// What one write is compared with.
struct SqliteSeen {
    current: Option<SqliteCurrent>,
    request: Option<SqliteRequest>,
    registers: Option<String>,
    release: Option<String>,
    confirmed_at: Option<i64>,
}

struct SqliteCurrent {
    revision: i64,
    seq: i64,
    digest: Vec<u8>,
    kind: String,
    raw_digest: Option<Vec<u8>>,
    content_digest: Option<Vec<u8>>,
    last_card: Option<Vec<u8>>,
}

struct SqliteRequest {
    names: Vec<u8>,
    outcome: String,
    revision: i64,
    seq: i64,
    digest: Vec<u8>,
    change: Option<String>,
}

impl SqliteSeen {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let current = match row.try_get("current_revision")? {
            Some(revision) => Some(SqliteCurrent {
                revision,
                seq: row.try_get("current_seq")?,
                digest: row.try_get("current_digest")?,
                kind: row.try_get("current_kind")?,
                raw_digest: row.try_get("current_raw_digest")?,
                content_digest: row.try_get("current_content_digest")?,
                last_card: row.try_get("last_card")?,
            }),
            None => None,
        };
        let request = match row.try_get("request_names")? {
            Some(names) => Some(SqliteRequest {
                names,
                outcome: row.try_get("request_outcome")?,
                revision: row.try_get("request_revision")?,
                seq: row.try_get("request_seq")?,
                digest: row.try_get("request_digest")?,
                change: row.try_get("request_change")?,
            }),
            None => None,
        };
        Ok(Self {
            current,
            request,
            registers: row.try_get("registers")?,
            release: row.try_get("release")?,
            confirmed_at: row.try_get("origin_confirmed_at")?,
        })
    }
}

pub(super) fn seen(row: &SqliteRow, ledger_id: &str, expect_seq: Option<u64>) -> Result<Seen, Error> {
    let digest_at_expected = match expect_seq {
        Some(seq) => digest_at(row, ledger_id, seq)?,
        None => None,
    };
    let row = SqliteSeen::from_row(row).map_err(unreadable)?;
    let optional = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(stored::digest).transpose();
    let current = match row.current {
        Some(current) => Some(SeenRevision {
            number: stored::number(current.revision)?,
            position: stored::position(current.seq, &current.digest)?,
            kind: stored::revision_kind(&current.kind)?,
            raw_digest: optional(&current.raw_digest)?,
            content_digest: optional(&current.content_digest)?,
            last_card: optional(&current.last_card)?,
            last_card_checked: None,
        }),
        None => None,
    };
    let request = match row.request {
        Some(request) => Some(PriorRequest {
            names: stored::digest(&request.names)?,
            outcome: stored::outcome(&request.outcome)?,
            revision: stored::number(request.revision)?,
            position: stored::position(request.seq, &request.digest)?,
            change: request.change.as_deref().map(stored::change_from_json).transpose()?,
        }),
        None => None,
    };
    Ok(Seen {
        current,
        request,
        release: row.release,
        registers: registers(row.registers.as_deref())?,
        confirmed_at: row.confirmed_at.map(Timestamp::from_micros),
        digest_at_expected,
    })
}
