//! A JSON document as a tree that borrows from its bytes, and the way to name a place in it.
//!
//! Owns the tree and the JSON Pointer. Exists beside `serde_json::Value` because a `Value` can hold neither
//! the order nor the repetition of keys, and copies every text of a document that is read once.
//! Invariant: a tree is never deeper than [`scan::DEEPEST`](super::scan::DEEPEST), so recursion over it is safe.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

/// An object's members in document order, keys unescaped.
pub(super) type Members<'a> = Vec<(Cow<'a, str>, Node<'a>)>;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node<'a> {
    Null,
    Bool(bool),
    /// JSON numbers are doubles here, as RFC 8785 has them; the scanner refuses those that are not.
    Number(f64),
    Text(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Members<'a>),
}

impl Node<'_> {
    /// What a message calls this kind of value.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }
}

impl<'a> Node<'a> {
    pub(super) fn as_object(&self) -> Option<&[(Cow<'a, str>, Node<'a>)]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The value that a JSON Pointer names.
    pub(super) fn at(&self, pointer: &str) -> Option<&Node<'a>> {
        let mut steps = pointer.split('/');
        steps.next();
        steps.try_fold(self, |node, step| match node {
            Self::Object(_) if step.contains('~') => node.member(&step.replace("~1", "/").replace("~0", "~")),
            Self::Object(_) => node.member(step),
            Self::Array(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// The value of a member of exactly this name, `null` included.
    pub(super) fn member(&self, name: &str) -> Option<&Node<'a>> {
        self.as_object()?.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

/// For the canonicaliser only: nothing else is ever written from a tree.
impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| seq.serialize_element(item))?;
                seq.end()
            }
            Self::Object(members) => Object(members, "").serialize(serializer),
        }
    }
}

/// An object without one of its members.
pub(super) struct Object<'n, 'a>(pub(super) &'n [(Cow<'a, str>, Node<'a>)], pub(super) &'static str);

impl Serialize for Object<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(members, without) = self;
        let mut map = serializer.serialize_map(Some(members.len()))?;
        for (key, value) in members.iter().filter(|(key, _)| without.is_empty() || key != without) {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// A place in a document, kept on the stack of whoever walks it. Its text is the RFC 6901 JSON Pointer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'p> {
    parent: Option<&'p Place<'p>>,
    step: Step<'p>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'p> {
    Key(&'p str),
    Index(usize),
}

impl<'p> Place<'p> {
    /// The whole document.
    pub(super) const ROOT: Self = Self { parent: None, step: Step::Index(0) };

    pub(super) const fn key(&'p self, key: &'p str) -> Self {
        Self { parent: Some(self), step: Step::Key(key) }
    }

    pub(super) const fn index(&'p self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(parent) = self.parent else { return Ok(()) };
        write!(f, "{parent}{}", self.step)
    }
}

/// One step of a pointer: a slash, and the name with `~` and `/` escaped.
impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "/{index}"),
            Self::Key(key) => {
                f.write_str("/")?;
                for part in key.split_inclusive(['~', '/']) {
                    match part.as_bytes().last() {
                        Some(b'~') => write!(f, "{}~0", &part[..part.len() - 1])?,
                        Some(b'/') => write!(f, "{}~1", &part[..part.len() - 1])?,
                        _ => f.write_str(part)?,
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_escapes_tilde_and_slash() {
        let skills = Place::ROOT.key("a/b~c");
        let first = skills.index(0);
        assert_eq!(first.key("").to_string(), "/a~1b~0c/0/");
        assert_eq!(Place::ROOT.to_string(), "");
    }

    #[test]
    fn a_tree_is_written_without_the_member_named() {
        let members = vec![("b".into(), Node::Null), ("a".into(), Node::Array(vec![Node::Bool(true)]))];
        assert_eq!(serde_json_canonicalizer::to_string(&Object(&members, "b")).unwrap(), r#"{"a":[true]}"#);
        assert_eq!(
            serde_json_canonicalizer::to_string(&Node::Object(members)).unwrap(),
            r#"{"a":[true],"b":null}"#
        );
    }
}
