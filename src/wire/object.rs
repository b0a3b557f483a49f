//! Requests are objects and nothing else.
//!
//! What serde derives for a struct takes an array too, member by member, so `[]` would be a fence without
//! conditions; and an `Option` takes `null`, which whoever sends it may well mean as a value. Either would let a
//! caller pass unfenced. [`Object`] takes objects alone, and says in which member an error lies.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer as _, MapAccess, Visitor};

/// A struct that is read of an object alone.
pub(super) trait Shape {
    /// What is said when there is something else in its place.
    const EXPECTED: &'static str;
}

/// `T`, read of a JSON object.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Shape + Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members(PhantomData)).map(Self)
    }
}

/// A member that is an object, if it is there.
pub(super) fn one<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Shape + Deserialize<'de>,
{
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// A member that is an array of objects.
pub(super) fn many<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Shape + Deserialize<'de>,
{
    let all: Vec<Object<T>> = Vec::deserialize(deserializer)?;
    Ok(all.into_iter().map(|Object(value)| value).collect())
}

/// A member that may be left out, and is no `null`.
pub(super) fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

struct Members<T>(PhantomData<T>);

impl<'de, T: Shape + Deserialize<'de>> Visitor<'de> for Members<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(Named { members, name: String::new() }))
    }
}

/// Members, with the name of each put before what is wrong with its value.
struct Named<A> {
    members: A,
    name: String,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Named<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let Some(name) = self.members.next_key::<String>()? else { return Ok(None) };
        self.name = name;
        seed.deserialize(self.name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        let name = &self.name;
        self.members.next_value_seed(seed).map_err(|error| A::Error::custom(format_args!("{name}: {error}")))
    }
}
