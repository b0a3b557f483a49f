//! What a card offers, as fences ask for it: skills by id with their effective modes, packed.
//!
//! Owns a second writing of a part of the normal form, made of it and of nothing else. The normal form has a dozen
//! small boxes per skill. A resolve reads one card of very many, in no order, so each place in memory that it goes
//! to is one that no cache holds; here these are two, the texts and where each of them lies.
//!
//! Invariant: for every id it finds what [`Normal::skill`](super::Normal::skill) finds, with the same modes.

use std::collections::HashMap;

use super::normal::{Modes, Normal};

/// Where something lies: in the text, or in the list of modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    from: u32,
    to: u32,
}

/// The skills of a card and their effective modes.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The ids in order, then the modes, each once.
    text: Box<str>,
    /// Per skill, by id: its id in the text, its input modes, its output modes. Then the lists of modes.
    spans: Box<[Span]>,
    skills: u32,
}

/// One skill of a card.
#[derive(Debug, Clone, Copy)]
pub struct Offered<'o> {
    offer: &'o Offer,
    input: Span,
    output: Span,
}

/// Spans of one skill.
const OF_SKILL: usize = 3;

impl Offer {
    pub(super) fn of(normal: &Normal) -> Self {
        let skills: Vec<_> = normal.skills_by_id().map(|(_, skill)| skill).collect();
        let mut text = String::new();
        let ids: Vec<Span> = skills.iter().map(|skill| push(&mut text, &skill.id)).collect();
        let mut lists = Lists { first: skills.len() * OF_SKILL, ..Lists::default() };
        let mut spans = Vec::new();
        for (skill, id) in skills.iter().zip(ids) {
            let input = lists.span(&skill.effective_input, &mut text);
            spans.extend([id, input, lists.span(&skill.effective_output, &mut text)]);
        }
        spans.append(&mut lists.spans);
        Self { text: text.into(), spans: spans.into(), skills: place(skills.len()) }
    }

    /// The skill with an id.
    pub fn skill(&self, id: &str) -> Option<Offered<'_>> {
        let (skills, _) = self.spans.get(..self.skills as usize * OF_SKILL)?.as_chunks::<OF_SKILL>();
        let found = skills.binary_search_by(|[there, ..]| self.text(*there).cmp(id)).ok()?;
        let [_, input, output] = skills[found];
        Some(Offered { offer: self, input, output })
    }

    /// Empty where there is none.
    fn text(&self, span: Span) -> &str {
        self.text.get(span.from as usize..span.to as usize).unwrap_or_default()
    }

    fn modes(&self, list: Span) -> impl Iterator<Item = &str> + Clone {
        let spans = self.spans.get(list.from as usize..list.to as usize).unwrap_or_default();
        spans.iter().map(|span| self.text(*span))
    }
}

impl<'o> Offered<'o> {
    /// Its effective input modes.
    pub fn input(&self) -> impl Iterator<Item = &'o str> + Clone + use<'o> {
        self.offer.modes(self.input)
    }

    /// Its effective output modes.
    pub fn output(&self) -> impl Iterator<Item = &'o str> + Clone + use<'o> {
        self.offer.modes(self.output)
    }
}

/// Lists of modes in the making: most skills of a card have the same ones.
#[derive(Default)]
struct Lists<'n> {
    /// Where the first span of a list will lie.
    first: usize,
    spans: Vec<Span>,
    known: HashMap<&'n Modes, Span>,
    modes: HashMap<&'n str, Span>,
}

impl<'n> Lists<'n> {
    fn span(&mut self, list: &'n Modes, text: &mut String) -> Span {
        if let Some(known) = self.known.get(list) {
            return *known;
        }
        let from = self.first + self.spans.len();
        for mode in list.iter() {
            self.spans.push(*self.modes.entry(mode).or_insert_with(|| push(text, mode)));
        }
        let span = Span { from: place(from), to: place(self.first + self.spans.len()) };
        self.known.insert(list, span);
        span
    }
}

fn push(text: &mut String, more: &str) -> Span {
    let from = place(text.len());
    text.push_str(more);
    Span { from, to: place(text.len()) }
}

/// Of a card of more than four gigabytes what lies beyond is not found, so a fence refuses it.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::{Card, Limits};

    #[test]
    fn skills_and_modes_are_those_of_the_normal_form() {
        let text = r#"{"name":"n","url":"https://a.example","version":"1","defaultInputModes":["text/plain","A/B"],
            "skills":[{"id":"b","outputModes":["text/plain"]},{"id":"a\u0000","inputModes":["x"]},{"id":"a"},
            {"id":"é","inputModes":["text/plain","a/b"],"outputModes":["x","text/plain"]}]}"#;
        for text in [text, r#"{"name":"n","url":"https://a.example"}"#] {
            let card =
                Card::check(bytes::Bytes::copy_from_slice(text.as_bytes()), &Limits::default()).unwrap();
            for skill in &card.normal().skills {
                let offered = card.offer().skill(&skill.id).unwrap();
                assert!(offered.input().eq(skill.effective_input.iter().map(AsRef::as_ref)), "{}", skill.id);
                assert!(
                    offered.output().eq(skill.effective_output.iter().map(AsRef::as_ref)),
                    "{}",
                    skill.id
                );
            }
            for absent in ["", "A", "aa", "c", "text/plain", "ab"] {
                assert!(card.offer().skill(absent).is_none(), "{absent}");
            }
        }
    }
}
