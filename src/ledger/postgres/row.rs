//! Rows ↔ domain, for this store. Nothing else here names both.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::ledger::stored::{self, StoredReplica, StoredRevision};
use crate::ledger::{
    CardKept, Confirmed, Entry, Error, Head, HeadReport, Liveness, PriorRequest, Replica, Revision, Seen,
    SeenRevision, chain,
};
use crate::terms::{Tag, Timestamp};

use super::error::error;

fn unreadable(error: sqlx::Error) -> Error {
    self::error("read a row", &error)
}

/// The ledger and its last entry, if any.
struct PgHead {
    ledger_id: String,
    seq: Option<i64>,
    digest: Option<Vec<u8>>,
    micros: i64,
    /// The service clock; none only where its rows were removed by hand.
    elapsed: Option<i64>,
}

impl PgHead {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            ledger_id: row.try_get("ledger_id")?,
            seq: row.try_get("seq")?,
            digest: row.try_get("digest")?,
            micros: row.try_get("micros")?,
            elapsed: row.try_get("elapsed")?,
        })
    }

    fn head(&self) -> Result<Head, Error> {
        match (self.seq, &self.digest) {
            (Some(seq), Some(digest)) => {
                Ok(Head { seq: stored::number(seq)?, digest: stored::digest(digest)? })
            }
            _ => Ok(Head { seq: 0, digest: chain::origin(&self.ledger_id) }),
        }
    }
}

/// The ledger's id, its head, the server's clock and the service clock.
pub(super) fn head(row: &PgRow) -> Result<(String, Head, Timestamp, Duration), Error> {
    let row = PgHead::from_row(row).map_err(unreadable)?;
    let head = row.head()?;
    let service = stored::duration(row.elapsed.unwrap_or(0))?;
    Ok((row.ledger_id, head, Timestamp::from_micros(row.micros), service))
}

pub(super) fn head_report(row: &PgRow, asked: u64) -> Result<HeadReport, Error> {
    let in_recovery = row.try_get("in_recovery").map_err(unreadable)?;
    let at_asked: Option<Vec<u8>> = row.try_get("digest_at_asked").map_err(unreadable)?;
    let (ledger_id, head, wall, service) = head(row)?;
    let digest = match at_asked {
        Some(bytes) => Some(stored::digest(&bytes)?),
        None if asked == 0 => Some(chain::origin(&ledger_id)),
        None => None,
    };
    let tag_at_asked = digest.as_ref().map(Tag::from);
    let (age, hops) = (Some(Duration::ZERO), 0);
    Ok(HeadReport { ledger_id, in_recovery, head, tag_at_asked, wall, age, hops, service })
}

struct PgEntry {
    seq: i64,
    digest: Vec<u8>,
    body_digest: Vec<u8>,
    body: String,
    card: Option<Vec<u8>>,
}

/// An entry, with its card where the query asked for it.
pub(super) fn entry(row: &PgRow, with_card: bool) -> Result<Entry, Error> {
    let read = || {
        Ok(PgEntry {
            seq: row.try_get("seq")?,
            digest: row.try_get("digest")?,
            body_digest: row.try_get("body_digest")?,
            body: row.try_get("body")?,
            card: if with_card { row.try_get("card")? } else { None },
        })
    };
    let row: PgEntry = read().map_err(unreadable)?;
    Ok(Entry {
        seq: stored::number(row.seq)?,
        digest: stored::digest(&row.digest)?,
        body_digest: stored::digest(&row.body_digest)?,
        body: row.body.into(),
        card: row.card.map(|bytes| CardKept::Bytes(bytes.into())),
    })
}

pub(super) fn revision(row: &PgRow) -> Result<Revision, Error> {
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

pub(super) fn liveness(row: &PgRow) -> Result<Liveness, Error> {
    let name: (String, String) =
        (row.try_get("namespace").map_err(unreadable)?, row.try_get("name").map_err(unreadable)?);
    let confirmed: i64 = row.try_get("origin_confirmed_at").map_err(unreadable)?;
    let revision: i64 = row.try_get("revision").map_err(unreadable)?;
    let ttl: Option<i64> = row.try_get("ttl").map_err(unreadable)?;
    let service: i64 = row.try_get("confirmed_service").map_err(unreadable)?;
    Ok(Liveness {
        agent: stored::agent(&name.0, &name.1)?,
        revision: stored::number(revision)?,
        origin_confirmed_at: Timestamp::from_micros(confirmed),
        registers: registers(row.try_get("registers").map_err(unreadable)?),
        lease: stored::lease(ttl, service)?,
    })
}

/// What a confirmation came to, by what was current in its snapshot; `None`: a register was on its way, and has
/// made another revision current since.
pub(super) fn confirmed(row: &PgRow) -> Result<Option<Confirmed>, Error> {
    let read = || {
        let revision: Option<i64> = row.try_get("revision")?;
        let equal: Option<bool> = row.try_get("equal")?;
        let at: Option<i64> = row.try_get("at")?;
        let lease: (Option<i64>, Option<i64>) = (row.try_get("ttl")?, row.try_get("confirmed_service")?);
        Ok((revision, equal, at, lease))
    };
    let (revision, equal, at, (ttl, service)) = read().map_err(unreadable)?;
    let Some(revision) = revision else { return Ok(Some(Confirmed::NotFound)) };
    let revision = stored::number(revision)?;
    Ok(match (equal, at) {
        (None, _) => Some(Confirmed::Retired { revision }),
        (Some(false), _) => Some(Confirmed::OtherDigest { revision }),
        (Some(true), None) => None,
        (Some(true), Some(at)) => {
            let at = Timestamp::from_micros(at);
            Some(Confirmed::Done { revision, at, lease: stored::lease(ttl, service.unwrap_or(0))? })
        }
    })
}

pub(super) fn replica(row: &PgRow) -> Result<Replica, Error> {
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

fn registers(micros: Option<Vec<i64>>) -> Vec<Timestamp> {
    micros.unwrap_or_default().into_iter().map(Timestamp::from_micros).collect()
}

/// What one write is compared with.
struct PgSeen {
    current: Option<PgCurrent>,
    request: Option<PgRequest>,
    registers: Option<Vec<i64>>,
    release: Option<String>,
    confirmed_at: Option<i64>,
    digest_at_expected: Option<Vec<u8>>,
}

struct PgCurrent {
    revision: i64,
    seq: i64,
    digest: Vec<u8>,
    kind: String,
    raw_digest: Option<Vec<u8>>,
    content_digest: Option<Vec<u8>>,
    last_card: Option<Vec<u8>>,
}

struct PgRequest {
    names: Vec<u8>,
    outcome: String,
    revision: i64,
    seq: i64,
    digest: Vec<u8>,
    change: Option<String>,
}

impl PgSeen {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let current = match row.try_get("current_revision")? {
            Some(revision) => Some(PgCurrent {
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
            Some(names) => Some(PgRequest {
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
            digest_at_expected: row.try_get("digest_at_expected")?,
        })
    }
}

pub(super) fn seen(row: &PgRow, ledger_id: &str, expect_seq: Option<u64>) -> Result<Seen, Error> {
    let row = PgSeen::from_row(row).map_err(unreadable)?;
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
    let digest_at_expected = match (&row.digest_at_expected, expect_seq) {
        (None, Some(0)) => Some(chain::origin(ledger_id)),
        (bytes, _) => optional(bytes)?,
    };
    Ok(Seen {
        current,
        request,
        release: row.release,
        registers: registers(row.registers),
        confirmed_at: row.confirmed_at.map(Timestamp::from_micros),
        digest_at_expected,
    })
}
