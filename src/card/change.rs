//! What changed between two cards, and how much it matters.
//!
//! Owns the classes. A change is cosmetic exactly when neither the negotiation fingerprint nor the shape
//! moved. That holds by construction and not by the care of the comparisons below: where nothing moved only
//! cosmetic items are looked for, and where something moved that no item names, a last one says so.

use super::change_items::{Items, Pair};
use super::document::Card;
use super::words::vocabulary;

vocabulary! {
    /// How grave a change is; later is graver.
    Class {
        /// Nobody who negotiates can tell.
        Cosmetic = "cosmetic",
        /// What was agreed still holds; there is more to agree on.
        Additive = "additive",
        /// What was agreed may not hold.
        Breaking = "breaking",
    }
}

vocabulary! {
    /// What an item is about.
    ItemKind {
        SkillAdded = "skill_added",
        SkillRemoved = "skill_removed",
        InputModeAdded = "input_mode_added",
        InputModeRemoved = "input_mode_removed",
        OutputModeAdded = "output_mode_added",
        OutputModeRemoved = "output_mode_removed",
        SkillSecurityChanged = "skill_security_changed",
        StreamingAdded = "streaming_added",
        StreamingWithdrawn = "streaming_withdrawn",
        PushNotificationsAdded = "push_notifications_added",
        PushNotificationsWithdrawn = "push_notifications_withdrawn",
        ExtendedCardAdded = "extended_card_added",
        ExtendedCardWithdrawn = "extended_card_withdrawn",
        InterfaceAdded = "interface_added",
        InterfaceRemoved = "interface_removed",
        PreferredInterfaceChanged = "preferred_interface_changed",
        InterfacesReordered = "interfaces_reordered",
        ExtensionAdded = "extension_added",
        ExtensionRemoved = "extension_removed",
        /// An extension that was optional or absent is now required.
        ExtensionRequired = "extension_required",
        /// An extension that was required is now optional.
        ExtensionRelaxed = "extension_relaxed",
        SecuritySchemeAdded = "security_scheme_added",
        SecuritySchemeRemoved = "security_scheme_removed",
        SecuritySchemeChanged = "security_scheme_changed",
        SecurityChanged = "security_changed",
        /// v0.x or v1.0 became a superset of itself.
        ShapeWidened = "shape_widened",
        ShapeChanged = "shape_changed",
        AgentRetired = "agent_retired",
        /// What decides a negotiation moved, and no other item says how.
        NegotiationChanged = "negotiation_changed",
        VersionChanged = "version_changed",
        TextChanged = "text_changed",
        TagsChanged = "tags_changed",
        SignaturesChanged = "signatures_changed",
        /// Some other content changed.
        ContentChanged = "content_changed",
        /// The bytes changed, and nothing that they say.
        FormattingChanged = "formatting_changed",
        /// The list of items ends here although there are more; its class is the gravest of theirs.
        MoreChanges = "more_changes",
    }
}

/// One thing that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub kind: ItemKind,
    pub class: Class,
    /// A JSON Pointer into the document where it lies: the old one for what is gone, else the new one.
    /// At most 256 bytes: what lies deeper is told by the place above it.
    pub pointer: String,
    /// What it is about: a skill's id, a mode, a URL. Empty where there is but one. At most 256 bytes: a
    /// longer one is cut, and ends in `…`.
    pub subject: String,
}

/// All that changed between two cards of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The gravest of the items' classes; cosmetic without any.
    pub class: Class,
    /// Not cosmetic, although the card's own version stayed the same.
    pub silent: bool,
    /// At most a thousand and 64 KiB of text, then one `more_changes` that stands for the rest.
    pub items: Vec<Item>,
}

impl Change {
    /// From `before` to `after`. After a tombstone, `before` is the last card.
    pub fn between(before: &Card, after: &Card) -> Self {
        let (pair, mut items) = (Pair::of(before, after), Items::default());
        let shape = before.shape() != after.shape();
        if shape || before.negotiation_fingerprint() != after.negotiation_fingerprint() {
            pair.moved(&mut items);
        }
        pair.cosmetic(&mut items);
        let class = items.class();
        let silent = class != Class::Cosmetic && before.version() == after.version();
        Self { class, silent, items: items.into_list() }
    }

    /// From a card to its tombstone.
    pub fn retirement() -> Self {
        let mut items = Items::default();
        items.add(ItemKind::AgentRetired, Class::Breaking, String::new, "");
        Self { class: Class::Breaking, silent: false, items: items.into_list() }
    }
}
