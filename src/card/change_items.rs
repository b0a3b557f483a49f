//! The comparisons behind a change, one function for each part of a card.
//!
//! Owns which difference is which item, of which class, at which pointer. Order of items: as a reader asks,
//! skills first; the decision what a class means for the whole is `change`'s.

use std::collections::HashSet;

use super::change::{Class, Item, ItemKind};
use super::document::Card;
use super::generation::Shape;
use super::node::Step;
use super::normal::Normal;
use super::skill::{Side, Skill};

#[derive(Debug, Default)]
pub(super) struct Items(Vec<Item>);

impl Items {
    pub(super) fn add(&mut self, kind: ItemKind, class: Class, pointer: String, subject: &str) {
        self.0.push(Item { kind, class, pointer, subject: subject.to_owned() });
    }

    pub(super) fn class(&self) -> Class {
        self.0.iter().map(|item| item.class).max().unwrap_or(Class::Cosmetic)
    }

    pub(super) fn into_list(self) -> Vec<Item> {
        self.0
    }
}

/// What moved of that which decides a negotiation.
pub(super) fn moved(before: &Card, after: &Card, items: &mut Items) {
    let (old, new) = (before.normal(), after.normal());
    skills(old, new, items);
    capabilities(old, new, items);
    interfaces(old, new, items);
    extensions(old, new, items);
    security(old, new, items);
    match (before.shape(), after.shape()) {
        (from, to) if from == to => {}
        (_, to @ Shape::Superset) => {
            items.add(ItemKind::ShapeWidened, Class::Additive, String::new(), to.as_str());
        }
        (_, to) => items.add(ItemKind::ShapeChanged, Class::Breaking, String::new(), to.as_str()),
    }
}

fn skills(old: &Normal, new: &Normal, items: &mut Items) {
    for (n, skill) in old.skills.iter().enumerate() {
        if new.skill(&skill.id).is_none() {
            items.add(ItemKind::SkillRemoved, Class::Breaking, format!("/skills/{n}"), &skill.id);
        }
    }
    for (n, skill) in new.skills.iter().enumerate() {
        let Some(place) = old.skill_index(&skill.id) else {
            items.add(ItemKind::SkillAdded, Class::Additive, format!("/skills/{n}"), &skill.id);
            continue;
        };
        let was = (place, &old.skills[place]);
        let is = (n, skill);
        modes(was, is, Side::Input, items);
        modes(was, is, Side::Output, items);
        if was.1.security != skill.security {
            items.add(ItemKind::SkillSecurityChanged, Class::Breaking, format!("/skills/{n}"), &skill.id);
        }
    }
}

fn modes(was: (usize, &Skill), is: (usize, &Skill), side: Side, items: &mut Items) {
    let (removed, added) = match side {
        Side::Input => (ItemKind::InputModeRemoved, ItemKind::InputModeAdded),
        Side::Output => (ItemKind::OutputModeRemoved, ItemKind::OutputModeAdded),
    };
    let (old, new) = (was.1.effective(side), is.1.effective(side));
    if old == new {
        return;
    }
    let (held, holds): (HashSet<_>, HashSet<_>) = (old.iter().collect(), new.iter().collect());
    for mode in old.iter().filter(|mode| !holds.contains(mode)) {
        items.add(removed, Class::Breaking, was.1.modes_pointer(was.0, side), mode);
    }
    for mode in new.iter().filter(|mode| !held.contains(mode)) {
        items.add(added, Class::Additive, is.1.modes_pointer(is.0, side), mode);
    }
}

fn capabilities(old: &Normal, new: &Normal, items: &mut Items) {
    let (was, is) = (old.capabilities, new.capabilities);
    for (was, is, withdrawn, added) in [
        (was.streaming, is.streaming, ItemKind::StreamingWithdrawn, ItemKind::StreamingAdded),
        (
            was.push_notifications,
            is.push_notifications,
            ItemKind::PushNotificationsWithdrawn,
            ItemKind::PushNotificationsAdded,
        ),
        (was.extended_card, is.extended_card, ItemKind::ExtendedCardWithdrawn, ItemKind::ExtendedCardAdded),
    ] {
        match (was, is) {
            (true, false) => items.add(withdrawn, Class::Breaking, "/capabilities".to_owned(), ""),
            (false, true) => items.add(added, Class::Additive, "/capabilities".to_owned(), ""),
            _ => {}
        }
    }
}

fn interfaces(old: &Normal, new: &Normal, items: &mut Items) {
    let held: HashSet<_> = old.interfaces.iter().map(|interface| interface.key()).collect();
    let holds: HashSet<_> = new.interfaces.iter().map(|interface| interface.key()).collect();
    for interface in old.interfaces.iter().filter(|interface| !holds.contains(&interface.key())) {
        items.add(ItemKind::InterfaceRemoved, Class::Breaking, interface.pointer.to_string(), &interface.url);
    }
    for interface in new.interfaces.iter().filter(|interface| !held.contains(&interface.key())) {
        items.add(ItemKind::InterfaceAdded, Class::Additive, interface.pointer.to_string(), &interface.url);
    }
    if let (Some(was), Some(is)) = (old.interfaces.first(), new.interfaces.first())
        && was.key() != is.key()
    {
        items.add(ItemKind::PreferredInterfaceChanged, Class::Breaking, is.pointer.to_string(), &is.url);
        return;
    }
    let kept_before =
        old.interfaces.iter().map(|interface| interface.key()).filter(|key| holds.contains(key));
    let kept_after = new.interfaces.iter().map(|interface| interface.key()).filter(|key| held.contains(key));
    if !kept_before.eq(kept_after) {
        let pointer = new.interfaces.first().map_or_else(String::new, |first| first.pointer.to_string());
        items.add(ItemKind::InterfacesReordered, Class::Breaking, pointer, "");
    }
}

fn extensions(old: &Normal, new: &Normal, items: &mut Items) {
    let pointer = |index: u32| format!("/capabilities/extensions/{index}");
    for extension in &old.extensions {
        if new.extension(&extension.uri).is_none() {
            items.add(ItemKind::ExtensionRemoved, Class::Breaking, pointer(extension.index), &extension.uri);
        }
    }
    for extension in &new.extensions {
        let was = old.extension(&extension.uri).map(|extension| extension.required);
        let (kind, class) = match (was, extension.required) {
            (Some(was), is) if was == is => continue,
            (None, false) => (ItemKind::ExtensionAdded, Class::Additive),
            (_, true) => (ItemKind::ExtensionRequired, Class::Breaking),
            (Some(_), false) => (ItemKind::ExtensionRelaxed, Class::Breaking),
        };
        items.add(kind, class, pointer(extension.index), &extension.uri);
    }
}

fn security(old: &Normal, new: &Normal, items: &mut Items) {
    let pointer = |name: &str| format!("/securitySchemes{}", Step::Key(name));
    for (name, _) in &old.schemes {
        if new.scheme(name).is_none() {
            items.add(ItemKind::SecuritySchemeRemoved, Class::Breaking, pointer(name), name);
        }
    }
    for (name, scheme) in &new.schemes {
        let kind = match old.scheme(name) {
            Some(was) if was == scheme => continue,
            Some(_) => ItemKind::SecuritySchemeChanged,
            None => ItemKind::SecuritySchemeAdded,
        };
        items.add(kind, Class::Breaking, pointer(name), name);
    }
    if old.security != new.security {
        items.add(ItemKind::SecurityChanged, Class::Breaking, String::new(), "");
    }
}

/// What changed for people only.
pub(super) fn cosmetic(before: &Card, after: &Card, items: &mut Items) {
    let (old, new) = (before.normal(), after.normal());
    let mut add = |kind, pointer: String, subject: &str| items.add(kind, Class::Cosmetic, pointer, subject);
    if before.version() != after.version() {
        add(ItemKind::VersionChanged, "/version".to_owned(), after.version().unwrap_or_default());
    }
    for (was, is, name) in
        [(&old.name, &new.name, "name"), (&old.description, &new.description, "description")]
    {
        if was != is {
            add(ItemKind::TextChanged, format!("/{name}"), name);
        }
    }
    for (n, is) in new.skills.iter().enumerate() {
        let Some(was) = old.skill(&is.id) else { continue };
        for (was, is, name) in
            [(&was.name, &is.name, "name"), (&was.description, &is.description, "description")]
        {
            if was != is {
                add(ItemKind::TextChanged, format!("/skills/{n}/{name}"), name);
            }
        }
        if was.tags != is.tags {
            add(ItemKind::TagsChanged, format!("/skills/{n}/tags"), &is.id);
        }
    }
    let signatures = before.signatures() != after.signatures();
    if signatures {
        add(ItemKind::SignaturesChanged, "/signatures".to_owned(), "");
    }
    let content = before.content_digest() != after.content_digest();
    if content && items.0.is_empty() {
        items.add(ItemKind::ContentChanged, Class::Cosmetic, String::new(), "");
    } else if !content && !signatures && before.raw_digest() != after.raw_digest() {
        items.add(ItemKind::FormattingChanged, Class::Cosmetic, String::new(), "");
    }
}
