//! What the durable backends write in the same form: a change as JSON, and a revision read back from its entry.
//!
//! Holds no SQL. The facts of a revision are taken from its entry's body, which is hashed; a column beside it
//! could disagree.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Body, Error, Kind, Lease, Omitted, Outcome, Replica, Revision, RevisionKind};
use crate::card::{Change, Class, Item, ItemKind};
use crate::terms::{AgentName, Digest, Position, Tag};

/// A page of entries ends once it holds this many bytes of bodies and cards; it holds at least one entry.
pub(super) const PAGE_BYTES: i64 = 8 << 20;

#[derive(Serialize, Deserialize)]
struct ChangeJson {
    class: String,
    silent: bool,
    items: Vec<ItemJson>,
}

#[derive(Serialize, Deserialize)]
struct ItemJson {
    kind: String,
    class: String,
    pointer: String,
    subject: String,
}

/// A change as it is stored. Control characters are escaped, U+0000 included.
pub(super) fn change_to_json(change: &Change) -> Result<String, Error> {
    let item = |item: &Item| ItemJson {
        kind: item.kind.as_str().to_owned(),
        class: item.class.as_str().to_owned(),
        pointer: item.pointer.clone(),
        subject: item.subject.clone(),
    };
    let json = ChangeJson {
        class: change.class.as_str().to_owned(),
        silent: change.silent,
        items: change.items.iter().map(item).collect(),
    };
    serde_json::to_string(&json)
        .map_err(|error| Error::Corrupt(format!("a change cannot be written: {error}")))
}

/// Reads a stored change. Kinds that a later version wrote are told by the general word for their class: a
/// node that is not upgraded yet must go on answering.
pub(super) fn change_from_json(text: &str) -> Result<Change, Error> {
    let json: ChangeJson = serde_json::from_str(text).map_err(|error| corrupt("a change", &error))?;
    let items = json.items.into_iter().map(|item| {
        let class = class(&item.class)?;
        let kind = item.kind.parse().or_else(|_| general(class))?;
        Ok(Item { kind, class, pointer: item.pointer, subject: item.subject })
    });
    Ok(Change {
        class: class(&json.class)?,
        silent: json.silent,
        items: items.collect::<Result<_, Error>>()?,
    })
}

fn class(text: &str) -> Result<Class, Error> {
    text.parse().map_err(|_| Error::Corrupt(format!("`{text}` is no class of changes")))
}

fn general(class: Class) -> Result<ItemKind, Error> {
    let word = if class == Class::Cosmetic { "content_changed" } else { "negotiation_changed" };
    word.parse().map_err(|_| Error::Corrupt(format!("`{word}` is no kind of change")))
}

/// A row of `revision` with its entry, as both databases give it.
pub(super) struct StoredRevision {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) revision: i64,
    pub(super) seq: i64,
    pub(super) digest: Vec<u8>,
    pub(super) body: String,
    pub(super) kind: String,
    pub(super) change: Option<String>,
}

impl StoredRevision {
    pub(super) fn into_revision(self) -> Result<Revision, Error> {
        let kind = revision_kind(&self.kind)?;
        let body = Body::parse(&self.body).map_err(|error| Error::Corrupt(error.to_string()))?;
        let facts = match (kind, body.kind) {
            (RevisionKind::Card, Kind::CardRegistered(facts)) => Some(facts),
            (RevisionKind::Tombstone, Kind::CardRetired { .. }) => None,
            (kind, _) => {
                let text = format!("entry {} is not the {} that its revision says", self.seq, kind.as_str());
                return Err(Error::Corrupt(text));
            }
        };
        Ok(Revision {
            agent: agent(&self.namespace, &self.name)?,
            number: number(self.revision)?,
            position: position(self.seq, &self.digest)?,
            kind,
            registered_at: body.at,
            registered_by: body.principal,
            note: body.note,
            facts,
            change: self.change.as_deref().map(change_from_json).transpose()?,
        })
    }
}

/// A row of `replica`, as both databases give and take it.
#[derive(Debug)]
pub(super) struct StoredReplica {
    pub(super) replica: String,
    pub(super) role: String,
    pub(super) seq: i64,
    pub(super) tag: i64,
    pub(super) staleness_us: Option<i64>,
    pub(super) hops: i64,
    pub(super) version: String,
    pub(super) via: Option<String>,
    pub(super) omitted: Option<i64>,
    pub(super) omitted_seq: Option<i64>,
    pub(super) omitted_tag: Option<i64>,
    pub(super) silent_us: i64,
}

impl From<&Replica> for StoredReplica {
    fn from(replica: &Replica) -> Self {
        let omitted = replica.omitted.as_ref();
        Self {
            replica: replica.replica.clone(),
            role: replica.role.clone(),
            seq: count(replica.position.seq),
            tag: replica.position.tag.0.cast_signed(),
            staleness_us: replica.staleness.map(micros),
            hops: i64::from(replica.hops),
            version: replica.version.clone(),
            via: replica.via.clone(),
            omitted: omitted.map(|omitted| count(omitted.count)),
            omitted_seq: omitted.map(|omitted| count(omitted.at_least.seq)),
            omitted_tag: omitted.map(|omitted| omitted.at_least.tag.0.cast_signed()),
            silent_us: micros(replica.silent),
        }
    }
}

impl StoredReplica {
    pub(super) fn into_replica(self) -> Result<Replica, Error> {
        let at = |seq, tag: i64| Ok(Position { seq: number(seq)?, tag: Tag(tag.cast_unsigned()) });
        let omitted = match (self.omitted, self.omitted_seq, self.omitted_tag) {
            (Some(count), Some(seq), Some(tag)) => {
                Some(Omitted { count: number(count)?, at_least: at(seq, tag)? })
            }
            _ => None,
        };
        Ok(Replica {
            replica: self.replica,
            role: self.role,
            position: at(self.seq, self.tag)?,
            staleness: self.staleness_us.map(number).transpose()?.map(Duration::from_micros),
            hops: u32::try_from(self.hops).unwrap_or(u32::MAX),
            version: self.version,
            via: self.via,
            // A clock that was set back makes nobody speak from the future.
            silent: Duration::from_micros(number(self.silent_us.max(0))?),
            omitted,
        })
    }
}

pub(super) fn agent(namespace: &str, name: &str) -> Result<AgentName, Error> {
    AgentName::new(namespace, name).map_err(|error| corrupt("an agent's name", &error))
}

pub(super) fn revision_kind(text: &str) -> Result<RevisionKind, Error> {
    RevisionKind::parse(text).ok_or_else(|| Error::Corrupt(format!("`{text}` is no kind of revision")))
}

pub(super) fn outcome(text: &str) -> Result<Outcome, Error> {
    Outcome::parse(text).ok_or_else(|| Error::Corrupt(format!("`{text}` is no outcome")))
}

pub(super) fn digest(bytes: &[u8]) -> Result<Digest, Error> {
    Digest::try_from(bytes).map_err(|error| corrupt("a digest", &error))
}

pub(super) fn position(seq: i64, digest_bytes: &[u8]) -> Result<Position, Error> {
    Ok(Position::new(number(seq)?, &digest(digest_bytes)?))
}

/// A count from the database, which knows no unsigned numbers.
pub(super) fn number(value: i64) -> Result<u64, Error> {
    u64::try_from(value).map_err(|_| Error::Corrupt(format!("{value} is no count")))
}

/// A count for the database. What is beyond its numbers is beyond its rows too.
pub(super) fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Microseconds for the database.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Microseconds from the database.
pub(super) fn duration(micros: i64) -> Result<Duration, Error> {
    number(micros).map(Duration::from_micros)
}

/// A lease, where an agent was registered with one.
pub(super) fn lease(ttl: Option<i64>, confirmed: i64) -> Result<Option<Lease>, Error> {
    let Some(ttl) = ttl else { return Ok(None) };
    Ok(Some(Lease { ttl: duration(ttl)?, confirmed: duration(confirmed)? }))
}

/// A limit for the database.
pub(super) fn limit(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn corrupt(what: &str, error: &dyn std::error::Error) -> Error {
    Error::Corrupt(format!("{what} cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_round_trips_and_holds_no_nul() {
        let mut change = Change::retirement();
        change.items.push(Item {
            kind: "skill_removed".parse().unwrap(),
            class: Class::Breaking,
            pointer: "/skills/0".to_owned(),
            subject: "nul \u{0}, quote \", ü".to_owned(),
        });
        let text = change_to_json(&change).unwrap();
        assert!(!text.contains('\0'), "{text}");
        assert_eq!(change_from_json(&text).unwrap(), change);
    }

    #[test]
    fn a_kind_of_a_later_version_is_told_by_a_general_word() {
        let text = |class: &str| {
            format!(
                r#"{{"class":"{class}","silent":false,"items":[{{"kind":"moon_moved","class":"{class}","pointer":"/m","subject":"s"}}]}}"#
            )
        };
        for class in ["cosmetic", "additive", "breaking"] {
            let change = change_from_json(&text(class)).unwrap();
            assert_eq!((change.class.as_str(), change.items.len()), (class, 1));
        }
        assert!(change_from_json(&text("grave")).is_err());
        assert!(change_from_json("{}").is_err());
    }
}
