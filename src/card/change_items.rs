//! The comparisons behind a change, one function for each part of a card.
//!
//! Owns which difference is which item, of which class, and where it lies. The normal form does not keep
//! the place of every fact, so the documents are read again for that: changes are rare, cards are many.
//! Skills come first, as a reader asks. What the items mean for the whole is decided in `change`.

use std::collections::HashSet;

use super::change::{Class, Item, ItemKind};
use super::document::Card;
use super::finding::Findings;
use super::generation::Shape;
use super::interface::Interface;
use super::node::{Node, Step};
use super::normal::{Capabilities, Modes, Normal};
use super::scan::{DEEPEST, scan};
use super::skill::Skill;

/// The most items that a change lists: cards of the largest size can differ in millions of modes.
const MOST: usize = 1_000;

/// The most text that the items hold, in bytes: a change is stored, sent and shown in whole.
const MOST_TEXT: usize = 64 * 1024;

/// The longest subject, and the longest pointer, in bytes.
const LONGEST: usize = 256;

/// The items of a change. Past [`MOST`] of them or [`MOST_TEXT`] they only count towards its class.
#[derive(Debug, Default)]
pub(super) struct Items {
    list: Vec<Item>,
    text: usize,
    /// The gravest class of those that are not listed. Once there is one, no more are listed.
    beyond: Option<Class>,
}

impl Items {
    /// Adds an item. Its pointer is only made when there is room for it.
    pub(super) fn add(
        &mut self,
        kind: ItemKind,
        class: Class,
        pointer: impl FnOnce() -> String,
        subject: &str,
    ) {
        if self.beyond.is_none() && self.list.len() < MOST {
            let (pointer, subject) = (ancestor(pointer()), cut(subject));
            let text = self.text + pointer.len() + subject.len();
            if text <= MOST_TEXT {
                self.text = text;
                self.list.push(Item { kind, class, pointer, subject });
                return;
            }
        }
        self.beyond = self.beyond.max(Some(class));
    }

    /// Whether there are items that are not listed.
    fn is_over(&self) -> bool {
        self.beyond.is_some()
    }

    /// The gravest class so far.
    pub(super) fn class(&self) -> Class {
        let listed = self.list.iter().map(|item| item.class);
        listed.chain(self.beyond).max().unwrap_or(Class::Cosmetic)
    }

    pub(super) fn into_list(mut self) -> Vec<Item> {
        if let Some(class) = self.beyond {
            let (pointer, subject) = (String::new(), String::new());
            self.list.push(Item { kind: ItemKind::MoreChanges, class, pointer, subject });
        }
        self.list
    }
}

/// `subject`, cut at a character when it is long.
fn cut(subject: &str) -> String {
    const ELLIPSIS: &str = "…";
    if subject.len() <= LONGEST {
        return subject.to_owned();
    }
    let most = LONGEST - ELLIPSIS.len();
    let end = (0..=most).rev().find(|&end| subject.is_char_boundary(end)).unwrap_or_default();
    format!("{}{ELLIPSIS}", &subject[..end])
}

/// `pointer`, or when it is long the nearest place above that is not: half a pointer would point nowhere.
fn ancestor(mut pointer: String) -> String {
    while pointer.len() > LONGEST {
        pointer.truncate(pointer.rfind('/').unwrap_or_default());
    }
    pointer
}

/// A card and its document.
struct Side<'c> {
    card: &'c Card,
    normal: &'c Normal,
    root: Node<'c>,
}

impl<'c> Side<'c> {
    fn of(card: &'c Card) -> Self {
        let root = scan(card.bytes(), DEEPEST, &mut Findings::default()).unwrap_or(Node::Null);
        Self { card, normal: card.normal(), root }
    }

    /// The first of the places that this document has.
    fn first(&self, places: &[&str]) -> Option<String> {
        let has = |place: &str| self.root.at(place).is_some_and(|node| *node != Node::Null);
        places.iter().find(|place| has(place)).map(|place| (*place).to_owned())
    }

    /// Where the effective modes of a skill are written.
    fn modes(&self, list: &ModeList, index: usize) -> String {
        let own = list.own.map(|name| format!("/skills/{index}/{name}"));
        let places = match (list.declared)(&self.normal.skills[index]) {
            Some(_) => own.each_ref().map(String::as_str),
            None => list.default,
        };
        self.first(&places).unwrap_or_default()
    }
}

/// One of a skill's two lists of modes: its items, and the names it goes by.
struct ModeList {
    removed: ItemKind,
    added: ItemKind,
    declared: fn(&Skill) -> Option<&Modes>,
    defaults: fn(&Normal) -> &Modes,
    own: [&'static str; 2],
    default: [&'static str; 2],
}

const MODE_LISTS: [ModeList; 2] = [
    ModeList {
        removed: ItemKind::InputModeRemoved,
        added: ItemKind::InputModeAdded,
        declared: |skill| skill.declared_input.as_ref(),
        defaults: |normal| &normal.default_input,
        own: ["inputModes", "input_modes"],
        default: ["/defaultInputModes", "/default_input_modes"],
    },
    ModeList {
        removed: ItemKind::OutputModeRemoved,
        added: ItemKind::OutputModeAdded,
        declared: |skill| skill.declared_output.as_ref(),
        defaults: |normal| &normal.default_output,
        own: ["outputModes", "output_modes"],
        default: ["/defaultOutputModes", "/default_output_modes"],
    },
];

/// A list of modes that can be asked.
struct Known<'c> {
    modes: &'c Modes,
    set: HashSet<&'c str>,
}

impl<'c> Known<'c> {
    fn of(modes: &'c Modes) -> Self {
        Self { modes, set: modes.iter().map(AsRef::as_ref).collect() }
    }

    /// The modes that `other` lacks.
    fn without(&self, other: &Known<'_>) -> impl Iterator<Item = &'c str> {
        self.modes.iter().map(AsRef::as_ref).filter(|mode| !other.set.contains(mode))
    }
}

/// A capability: its items, and the places where documents state it.
struct Capability {
    added: ItemKind,
    withdrawn: ItemKind,
    on: fn(&Capabilities) -> bool,
    places: &'static [&'static str],
}

const CAPABILITIES: [Capability; 3] = [
    Capability {
        added: ItemKind::StreamingAdded,
        withdrawn: ItemKind::StreamingWithdrawn,
        on: |capabilities| capabilities.streaming,
        places: &["/capabilities/streaming"],
    },
    Capability {
        added: ItemKind::PushNotificationsAdded,
        withdrawn: ItemKind::PushNotificationsWithdrawn,
        on: |capabilities| capabilities.push_notifications,
        places: &["/capabilities/pushNotifications", "/capabilities/push_notifications"],
    },
    Capability {
        added: ItemKind::ExtendedCardAdded,
        withdrawn: ItemKind::ExtendedCardWithdrawn,
        on: |capabilities| capabilities.extended_card,
        places: &[
            "/capabilities/extendedAgentCard",
            "/capabilities/extended_agent_card",
            "/supportsAuthenticatedExtendedCard",
            "/supports_authenticated_extended_card",
            "/supportsExtendedAgentCard",
            "/supports_extended_agent_card",
        ],
    },
];

/// Where documents state what they require of callers.
const SECURITY: [&str; 4] =
    ["/securityRequirements", "/security_requirements", "/security", "/authentication"];

/// The old card and the new one.
pub(super) struct Pair<'c> {
    old: Side<'c>,
    new: Side<'c>,
}

impl<'c> Pair<'c> {
    pub(super) fn of(before: &'c Card, after: &'c Card) -> Self {
        Self { old: Side::of(before), new: Side::of(after) }
    }

    /// Where a thing that changed lies: in the new document, or in the old one if it has gone.
    fn place(&self, places: &[&str]) -> String {
        self.new.first(places).or_else(|| self.old.first(places)).unwrap_or_default()
    }

    /// What moved of that which decides a negotiation.
    pub(super) fn moved(&self, items: &mut Items) {
        self.skills(items);
        for list in &MODE_LISTS {
            self.modes(list, items);
        }
        self.capabilities(items);
        self.interfaces(items);
        self.extensions(items);
        self.security(items);
        let (before, after) = (self.old.card, self.new.card);
        if items.list.is_empty() && before.negotiation_fingerprint() != after.negotiation_fingerprint() {
            items.add(ItemKind::NegotiationChanged, Class::Breaking, String::new, "");
        }
        match (before.shape(), after.shape()) {
            (from, to) if from == to => {}
            (_, to @ Shape::Superset) => {
                items.add(ItemKind::ShapeWidened, Class::Additive, String::new, to.as_str());
            }
            (_, to) => items.add(ItemKind::ShapeChanged, Class::Breaking, String::new, to.as_str()),
        }
    }

    fn skills(&self, items: &mut Items) {
        let (old, new) = (self.old.normal, self.new.normal);
        for (n, skill) in old.skills.iter().enumerate() {
            if new.skill(&skill.id).is_none() {
                items.add(ItemKind::SkillRemoved, Class::Breaking, || format!("/skills/{n}"), &skill.id);
            }
        }
        for (n, is) in new.skills.iter().enumerate() {
            let Some(was) = old.skill(&is.id) else {
                items.add(ItemKind::SkillAdded, Class::Additive, || format!("/skills/{n}"), &is.id);
                continue;
            };
            if was.security != is.security {
                items.add(ItemKind::SkillSecurityChanged, Class::Breaking, || format!("/skills/{n}"), &is.id);
            }
        }
    }

    /// The modes of all skills that both cards have. What changed in the defaults is told once.
    fn modes(&self, list: &ModeList, items: &mut Items) {
        let defaults = [self.old.normal, self.new.normal].map(|normal| Known::of((list.defaults)(normal)));
        let mut defaults_told = false;
        for (n, is) in self.new.normal.skills.iter().enumerate() {
            let Some(m) = self.old.normal.skill_index(&is.id) else { continue };
            let own = [(list.declared)(&self.old.normal.skills[m]), (list.declared)(is)];
            if own == [None, None] && std::mem::replace(&mut defaults_told, true) {
                continue;
            }
            let own = own.map(|modes| modes.map(Known::of));
            let was = own[0].as_ref().unwrap_or(&defaults[0]);
            let is = own[1].as_ref().unwrap_or(&defaults[1]);
            // Once the list has ended the first of each kind settles the class.
            for mode in was.without(is) {
                items.add(list.removed, Class::Breaking, || self.old.modes(list, m), mode);
                if items.is_over() {
                    break;
                }
            }
            for mode in is.without(was) {
                items.add(list.added, Class::Additive, || self.new.modes(list, n), mode);
                if items.is_over() {
                    break;
                }
            }
        }
    }

    fn capabilities(&self, items: &mut Items) {
        let (was, is) = (&self.old.normal.capabilities, &self.new.normal.capabilities);
        for Capability { added, withdrawn, on, places } in &CAPABILITIES {
            match (on(was), on(is)) {
                (true, false) => {
                    let pointer = self.old.first(places).unwrap_or_default();
                    items.add(*withdrawn, Class::Breaking, || pointer, "");
                }
                (false, true) => items.add(*added, Class::Additive, || self.place(places), ""),
                _ => {}
            }
        }
    }

    fn interfaces(&self, items: &mut Items) {
        let (old, new) = (&self.old.normal.interfaces, &self.new.normal.interfaces);
        let held: HashSet<_> = old.iter().map(Interface::key).collect();
        let holds: HashSet<_> = new.iter().map(Interface::key).collect();
        for gone in old.iter().filter(|interface| !holds.contains(&interface.key())) {
            items.add(ItemKind::InterfaceRemoved, Class::Breaking, || gone.pointer.to_string(), &gone.url);
        }
        for fresh in new.iter().filter(|interface| !held.contains(&interface.key())) {
            items.add(ItemKind::InterfaceAdded, Class::Additive, || fresh.pointer.to_string(), &fresh.url);
        }
        let (Some(was), Some(is)) = (old.first(), new.first()) else { return };
        let kept_before = old.iter().map(Interface::key).filter(|key| holds.contains(key));
        let kept_after = new.iter().map(Interface::key).filter(|key| held.contains(key));
        if was.key() != is.key() {
            let kind = ItemKind::PreferredInterfaceChanged;
            items.add(kind, Class::Breaking, || is.pointer.to_string(), &is.url);
        } else if !kept_before.eq(kept_after) {
            items.add(ItemKind::InterfacesReordered, Class::Breaking, || is.pointer.to_string(), "");
        }
    }

    fn extensions(&self, items: &mut Items) {
        let (old, new) = (self.old.normal, self.new.normal);
        let pointer = |index: u32| format!("/capabilities/extensions/{index}");
        for gone in old.extensions.iter().filter(|extension| new.extension(&extension.uri).is_none()) {
            items.add(ItemKind::ExtensionRemoved, Class::Breaking, || pointer(gone.index), &gone.uri);
        }
        for extension in &new.extensions {
            let was = old.extension(&extension.uri).map(|extension| extension.required);
            let (kind, class) = match (was, extension.required) {
                (Some(was), is) if was == is => continue,
                (None, false) => (ItemKind::ExtensionAdded, Class::Additive),
                (_, true) => (ItemKind::ExtensionRequired, Class::Breaking),
                (Some(_), false) => (ItemKind::ExtensionRelaxed, Class::Breaking),
            };
            items.add(kind, class, || pointer(extension.index), &extension.uri);
        }
    }

    fn security(&self, items: &mut Items) {
        let (old, new) = (self.old.normal, self.new.normal);
        for (name, _) in old.schemes.iter().filter(|(name, _)| new.scheme(name).is_none()) {
            items.add(ItemKind::SecuritySchemeRemoved, Class::Breaking, || self.scheme(name), name);
        }
        for (name, scheme) in &new.schemes {
            let kind = match old.scheme(name) {
                Some(was) if was == scheme => continue,
                Some(_) => ItemKind::SecuritySchemeChanged,
                None => ItemKind::SecuritySchemeAdded,
            };
            items.add(kind, Class::Breaking, || self.scheme(name), name);
        }
        if old.security != new.security {
            items.add(ItemKind::SecurityChanged, Class::Breaking, || self.place(&SECURITY), "");
        }
        self.undefined(items);
    }

    /// What only the documents' authors can read. It is named by the scheme that it is about.
    fn undefined(&self, items: &mut Items) {
        let (old, new) = (&self.old.normal.undefined, &self.new.normal.undefined);
        let (was, is): (HashSet<_>, HashSet<_>) = (old.iter().collect(), new.iter().collect());
        let mut subjects: Vec<&str> =
            was.symmetric_difference(&is).map(|(about, _)| about.as_ref()).collect();
        subjects.sort_unstable();
        subjects.dedup();
        for about in subjects {
            let name = about.strip_prefix("schemes/");
            let place = || match name {
                Some(name) => self.scheme(name),
                None => self.place(&["/authentication"]),
            };
            let kind = match name {
                Some(name) => {
                    let (was, is) = (self.old.normal.scheme(name), self.new.normal.scheme(name));
                    // A scheme that came, went or changed besides has its item.
                    if was != is {
                        continue;
                    }
                    ItemKind::SecuritySchemeChanged
                }
                None => ItemKind::SecurityChanged,
            };
            items.add(kind, Class::Breaking, place, name.unwrap_or(about));
        }
    }

    /// Where a security scheme lies.
    fn scheme(&self, name: &str) -> String {
        let step = Step::Key(name);
        let places = [format!("/securitySchemes{step}"), format!("/security_schemes{step}")];
        self.place(&[&places[0], &places[1], "/authentication/schemes"])
    }

    /// What changed for people only.
    pub(super) fn cosmetic(&self, items: &mut Items) {
        let (before, after) = (self.old.card, self.new.card);
        let (old, new) = (self.old.normal, self.new.normal);
        if before.version() != after.version() {
            let version = after.version().unwrap_or_default();
            items.add(ItemKind::VersionChanged, Class::Cosmetic, || self.place(&["/version"]), version);
        }
        for (was, is, place) in
            [(&old.name, &new.name, "/name"), (&old.description, &new.description, "/description")]
        {
            if was != is {
                items.add(ItemKind::TextChanged, Class::Cosmetic, || self.place(&[place]), &place[1..]);
            }
        }
        for (n, is) in new.skills.iter().enumerate() {
            let Some(m) = old.skill_index(&is.id) else { continue };
            let was = &old.skills[m];
            let place = |name: &str| {
                let (now, then) = (format!("/skills/{n}/{name}"), format!("/skills/{m}/{name}"));
                self.new.first(&[&now]).or_else(|| self.old.first(&[&then])).unwrap_or_default()
            };
            for (was, is, name) in
                [(&was.name, &is.name, "name"), (&was.description, &is.description, "description")]
            {
                if was != is {
                    items.add(ItemKind::TextChanged, Class::Cosmetic, || place(name), name);
                }
            }
            if was.tags != is.tags {
                items.add(ItemKind::TagsChanged, Class::Cosmetic, || place("tags"), &is.id);
            }
        }
        let signatures = before.signatures() != after.signatures();
        if signatures {
            items.add(ItemKind::SignaturesChanged, Class::Cosmetic, || self.place(&["/signatures"]), "");
        }
        let content = before.content_digest() != after.content_digest();
        if content && items.list.iter().all(|item| item.kind == ItemKind::SignaturesChanged) {
            items.add(ItemKind::ContentChanged, Class::Cosmetic, String::new, "");
        } else if !content && !signatures && before.raw_digest() != after.raw_digest() {
            items.add(ItemKind::FormattingChanged, Class::Cosmetic, String::new, "");
        }
    }
}
