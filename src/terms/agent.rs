//! The name of an agent in the registry: `namespace/name`.
//!
//! A2A cards carry no id and their `name` is not unique, so the registry names agents itself. Names are
//! ordered by namespace, then name; the joined text orders differently (`-` and `.` sort before `/`).

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest part of a name, in bytes.
const PART_MAX: usize = 64;

/// `namespace/name`, each part `[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct AgentName {
    text: Arc<str>,
    slash: u8,
}

impl AgentName {
    /// # Errors
    /// [`InvalidName`] when a part does not follow the rule.
    pub fn new(namespace: &str, name: &str) -> Result<Self, InvalidName> {
        for part in [namespace, name] {
            check_part(part).map_err(|InvalidPart(part)| InvalidName(part))?;
        }
        let slash = u8::try_from(namespace.len()).map_err(|_| InvalidName(namespace.to_owned()))?;
        Ok(Self { text: format!("{namespace}/{name}").into(), slash })
    }

    pub fn namespace(&self) -> &str {
        &self.text[..usize::from(self.slash)]
    }

    pub fn name(&self) -> &str {
        &self.text[usize::from(self.slash) + 1..]
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Whether `part` may be a namespace, or a name in one.
///
/// # Errors
/// [`InvalidPart`] that holds the part.
pub fn check_part(part: &str) -> Result<(), InvalidPart> {
    let edge = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let inner = |b: &u8| edge(b) || matches!(b, b'.' | b'_' | b'-');
    let bytes = part.as_bytes();
    let ends = bytes.first().is_some_and(edge) && bytes.last().is_some_and(edge);
    if ends && bytes.len() <= PART_MAX && bytes.iter().all(inner) {
        Ok(())
    } else {
        Err(InvalidPart(part.to_owned()))
    }
}

/// A text that is no namespace, and no name in one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not allowed: 1 to 64 of a-z 0-9 . _ - that begin and end with a letter or digit",
    .0.chars().take(100).collect::<String>().escape_debug()
)]
pub struct InvalidPart(pub String);

/// A text that names no agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a name: two parts `namespace/name`, each 1 to 64 of a-z 0-9 . _ - that begin and end with a letter or digit",
    .0.chars().take(100).collect::<String>().escape_debug()
)]
pub struct InvalidName(pub String);

impl FromStr for AgentName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let whole = || InvalidName(text.to_owned());
        let (namespace, name) = text.split_once('/').ok_or_else(whole)?;
        Self::new(namespace, name).map_err(|_| whole())
    }
}

impl Ord for AgentName {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.namespace(), self.name()).cmp(&(other.namespace(), other.name()))
    }
}

impl PartialOrd for AgentName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule_or_are_refused() {
        let long = "a".repeat(64);
        for good in ["a/b", "acme.eu/worker-7", "0/0", "a_b/c.d-e", &format!("{long}/{long}")] {
            assert_eq!(good.parse::<AgentName>().unwrap().as_str(), good);
        }
        let too_long = format!("{}/b", "a".repeat(65));
        for bad in
            ["", "a", "/", "a/", "/b", "a/b/c", "A/b", "a/-b", "a/b.", "a b/c", "ä/b", "a/b\n", &too_long]
        {
            assert!(bad.parse::<AgentName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn order_is_by_namespace_then_name() {
        let before: AgentName = "a/z".parse().unwrap();
        let after: AgentName = "a-b/a".parse().unwrap();
        assert!(before < after);
        assert!(before.as_str() > after.as_str());
    }
}
