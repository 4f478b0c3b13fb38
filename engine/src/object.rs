//! The collector's view of a Kubernetes object: identity, references, the two garbage-collection finalizers, the
//! deletion mark.

use crate::marks::Marks;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::num::NonZeroU32;

#[cfg(feature = "serde")]
mod data;
#[cfg(test)]
mod tests;

/// Finalizer of an owner whose dependents are deleted first.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// Finalizer of an owner whose dependents are orphaned.
pub const ORPHAN_FINALIZER: &str = "orphan";
/// Annotation that keeps the collector from deleting an object.
pub const HOLD_ANNOTATION: &str = "ownergraph.dev/hold";

/// Maximum number of distinct references of one object that the collector reads. An object with more is kept, and none
/// of its references counts.
pub const REFERENCES_MAX: usize = 5000;
/// Maximum number of bytes of text in these references, so that they fit into a message.
pub const REFERENCES_MAX_BYTES: usize = 512 * 1024;

/// The salt of [`Facts::digest_beyond_facts`]. Other facts have a salted digest with a chance of one in 2^64.
const BEYOND_FACTS: u64 = 0x6d61_726b_735f_6c61;

/// A name, namespace, group, version, kind or resource: short shared text.
pub type Name = Arc<str>;

/// `metadata.uid`: any non-empty text, compared byte for byte. The canonical form is stored in 16 bytes, other forms
/// are stored as text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(UidForm);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum UidForm {
    Canonical([u8; 16]),
    Text(Arc<str>),
}

impl Uid {
    /// `None` for an empty text: an object without a uid has no identity.
    pub fn parse(text: &str) -> Option<Uid> {
        if text.is_empty() {
            return None;
        }
        Some(Uid(match pack(text.as_bytes()) {
            Some(packed) => UidForm::Canonical(packed),
            None => UidForm::Text(Arc::from(text)),
        }))
    }

    /// The bytes of the canonical form.
    pub(crate) fn canonical(&self) -> Option<&[u8; 16]> {
        match &self.0 {
            UidForm::Canonical(packed) => Some(packed),
            UidForm::Text(_) => None,
        }
    }

    /// The uid of these bytes in canonical form.
    pub(crate) fn of_canonical(packed: [u8; 16]) -> Uid {
        Uid(UidForm::Canonical(packed))
    }

    /// The text. The canonical form is written into `room`, which avoids allocations.
    pub(crate) fn spelled<'a>(&'a self, room: &'a mut [u8; CANONICAL]) -> &'a str {
        match &self.0 {
            UidForm::Text(text) => text,
            UidForm::Canonical(packed) => {
                let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
                let mut digits = packed.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]);
                for (at, place) in room.iter_mut().enumerate() {
                    *place = if is_dash(at) { b'-' } else { digits.next().unwrap_or(b'0') };
                }
                core::str::from_utf8(room).unwrap_or_default()
            }
        }
    }
}

/// Characters of the canonical form.
const CANONICAL: usize = 36;

fn is_dash(at: usize) -> bool {
    matches!(at, 8 | 13 | 18 | 23)
}

/// The positions of the first digit of each byte.
const BYTES_AT: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

const NO_DIGIT: u8 = 0xff;

/// The value of each byte as a hexadecimal digit.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        digits[b"0123456789abcdef"[digit] as usize] = digit as u8;
        digit += 1;
    }
    digits
};

/// Packs only the spelling that `Display` returns, so that two different texts are never one uid. Each event has
/// several uids. For speed there is a single branch, at the end.
fn pack(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; CANONICAL] = text.try_into().ok()?;
    let mut wrong = (text[8] ^ b'-') | (text[13] ^ b'-') | (text[18] ^ b'-') | (text[23] ^ b'-');
    let mut packed = [0_u8; 16];
    for (byte, at) in packed.iter_mut().zip(BYTES_AT) {
        let (high, low) = (DIGITS[usize::from(text[at])], DIGITS[usize::from(text[at + 1])]);
        wrong |= (high | low) & 0xf0;
        *byte = high << 4 | low;
    }
    (wrong == 0).then_some(packed)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spelled(&mut [0; CANONICAL]))
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `metadata.resourceVersion`. Ordered only within one collection, and only if it is a decimal number (KEP-5504).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Version);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Version {
    Ordered(u128),
    Opaque(Arc<str>),
}

impl ResourceVersion {
    /// Every text is a version. Only a decimal without leading zeros, of at most 128 bits, is ordered.
    pub fn parse(text: &str) -> ResourceVersion {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        match text.parse::<u128>() {
            Ok(number) if plain => ResourceVersion(Version::Ordered(number)),
            _ => ResourceVersion(Version::Opaque(Arc::from(text))),
        }
    }

    /// The number, if it has at most 64 bits.
    pub(crate) fn number(&self) -> Option<u64> {
        match &self.0 {
            Version::Ordered(number) => u64::try_from(*number).ok(),
            Version::Opaque(_) => None,
        }
    }

    /// The version of this number.
    pub(crate) fn of_number(number: u64) -> ResourceVersion {
        ResourceVersion(Version::Ordered(u128::from(number)))
    }

    /// Whether the version is empty.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Version::Opaque(text) if text.is_empty())
    }

    /// Whether versions of this form are ordered.
    pub fn is_ordered(&self) -> bool {
        matches!(self.0, Version::Ordered(_))
    }

    /// The order of two versions of one collection, if they have one.
    pub fn compare(&self, other: &ResourceVersion) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Version::Ordered(a), Version::Ordered(b)) => Some(a.cmp(b)),
            (Version::Opaque(a), Version::Opaque(b)) if a == b => Some(Ordering::Equal),
            (Version::Opaque(_) | Version::Ordered(_), _) => None,
        }
    }

    /// A total order for sorting, the highest first. Versions that are not numbers come last.
    pub(crate) fn furthest_first(&self, other: &ResourceVersion) -> Ordering {
        match (&self.0, &other.0) {
            (Version::Ordered(a), Version::Ordered(b)) => b.cmp(a),
            (Version::Opaque(a), Version::Opaque(b)) => a.cmp(b),
            (Version::Ordered(_), Version::Opaque(_)) => Ordering::Less,
            (Version::Opaque(_), Version::Ordered(_)) => Ordering::Greater,
        }
    }

    /// Whether this version is known to be at or past `other`.
    pub fn reached(&self, other: &ResourceVersion) -> bool {
        matches!(self.compare(other), Some(Ordering::Equal | Ordering::Greater))
    }

    /// Whether this version is known to be more than `by` past `other`.
    pub fn leaps(&self, other: &ResourceVersion, by: u128) -> bool {
        match (&self.0, &other.0) {
            (Version::Ordered(this), Version::Ordered(other)) => this.saturating_sub(*other) > by,
            (Version::Opaque(_) | Version::Ordered(_), _) => false,
        }
    }

    /// Whether this version is known to be before `other`.
    pub fn is_before(&self, other: &ResourceVersion) -> bool {
        self.compare(other) == Some(Ordering::Less)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Version::Ordered(number) => write!(f, "{number}"),
            Version::Opaque(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One entry of `metadata.ownerReferences`, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OwnerReference {
    /// `group/version`, or only the version for the core group.
    pub api_version: Name,
    pub kind: Name,
    pub name: Name,
    pub uid: Uid,
    /// Absent and `false` differ, because a patch must write back the original.
    pub controller: Option<bool>,
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    /// The group of `api_version`; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// The version of `apiVersion`.
    pub fn version(&self) -> &str {
        self.api_version.rsplit_once('/').map_or(&self.api_version, |(_, version)| version)
    }

    /// Whether this is a blocking owner reference: the owner's foreground deletion waits for this dependent.
    pub fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }
}

/// The facts that a decision about an object can depend on. Other changes of the object do not change the decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Facts {
    /// Distinct entries. Empty if there is an `excess`.
    pub owners: Box<[OwnerReference]>,
    /// Replaces the references if there are more than [`REFERENCES_MAX`], or [`REFERENCES_MAX_BYTES`] of them.
    pub excess: Option<Excess>,
    /// `metadata.finalizers`, in order.
    pub finalizers: Box<[Name]>,
    /// `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// The hold annotation is present, with any value.
    pub hold: bool,
    /// `metadata.deletionTimestamp` in seconds since the Unix epoch, if known. For readers; no decision depends on it.
    pub deletion_time: Option<NonZeroU32>,
}

/// More references than the collector reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Excess {
    /// The number of distinct references.
    pub count: u32,
    /// The hash of the distinct references. [`Facts::digest`] continues with it.
    pub digest: u64,
}

impl Facts {
    /// Removes duplicate references, and replaces too many references by an [`Excess`]. Both services do this with all
    /// objects, so that their digests cover the same list.
    pub fn bound(&mut self) {
        if self.owners.len() > 1 {
            self.take_out_repeats();
            self.take_out_excess();
        }
    }

    fn take_out_repeats(&mut self) {
        let mut order: Vec<usize> = (0..self.owners.len()).collect();
        order.sort_unstable_by(|&one, &other| self.owners[one].cmp(&self.owners[other]).then(one.cmp(&other)));
        let repeats = order.windows(2).filter(|pair| self.owners[pair[0]] == self.owners[pair[1]]);
        let mut repeats: Vec<usize> = repeats.map(|pair| pair[1]).collect();
        if !repeats.is_empty() {
            repeats.sort_unstable();
            let mut repeats = repeats.into_iter().peekable();
            let owners = core::mem::take(&mut self.owners).into_vec().into_iter().enumerate();
            let distinct = owners.filter(|(at, _)| repeats.next_if_eq(at).is_none());
            self.owners = distinct.map(|(_, owner)| owner).collect();
        }
    }

    /// The size of all owner references in bytes.
    pub(crate) fn reference_bytes(&self) -> usize {
        let bytes = |owner: &OwnerReference| {
            let uid = owner.uid.spelled(&mut [0; CANONICAL]).len();
            owner.api_version.len() + owner.kind.len() + owner.name.len() + uid
        };
        self.owners.iter().map(bytes).sum()
    }

    fn take_out_excess(&mut self) {
        if self.owners.len() > REFERENCES_MAX || self.reference_bytes() > REFERENCES_MAX_BYTES {
            let count = u32::try_from(self.owners.len()).unwrap_or(u32::MAX);
            self.excess = Some(Excess { count, digest: self.digest_of_references().0 });
            self.owners = Box::default();
        }
    }

    fn digest_of_references(&self) -> Digest {
        let mut digest = self.excess.map_or_else(Digest::default, |excess| Digest(excess.digest));
        for owner in &self.owners {
            digest.text(&owner.api_version);
            digest.text(&owner.kind);
            digest.text(&owner.name);
            digest.uid(&owner.uid);
            digest.flag(owner.controller);
            digest.flag(owner.block_owner_deletion);
        }
        digest
    }

    /// Terminating, and its dependents are deleted first.
    pub fn deletes_dependents(&self) -> bool {
        self.terminating && self.has_finalizer(FOREGROUND_FINALIZER)
    }

    /// Terminating, and its dependents are orphaned.
    pub fn orphans_dependents(&self) -> bool {
        self.terminating && self.has_finalizer(ORPHAN_FINALIZER)
    }

    /// Whether `finalizer` is in the list.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| &**name == finalizer)
    }

    /// A digest for a decision that also depends on labels or annotations, which an executor does not know. It differs
    /// from the digest of these facts, so an executor that finds another version reports the facts and does not retry.
    pub fn digest_beyond_facts(&self) -> u64 {
        self.digest() ^ BEYOND_FACTS
    }

    /// FNV-1a over references, both garbage-collection finalizers, deletion mark and hold annotation, in a fixed order
    /// with lengths. If the digests are equal, an executor may retry after a conflict. The digest protects from
    /// accidents and not from an adversary, because the API server still checks the precondition.
    pub fn digest(&self) -> u64 {
        let mut digest = self.digest_of_references();
        for fact in [
            self.terminating,
            self.has_finalizer(FOREGROUND_FINALIZER),
            self.has_finalizer(ORPHAN_FINALIZER),
            self.hold,
        ] {
            digest.byte(u8::from(fact));
        }
        digest.0
    }
}

/// FNV-1a of 64 bits: the same on each machine and in each release.
#[derive(Debug)]
pub struct Digest(pub(crate) u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub fn of(bytes: impl IntoIterator<Item = u8>) -> u64 {
        let mut digest = Digest::default();
        bytes.into_iter().for_each(|byte| digest.byte(byte));
        digest.0
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        text.bytes().for_each(|byte| self.byte(byte));
    }

    pub(crate) fn number(&mut self, number: u64) {
        number.to_be_bytes().into_iter().for_each(|byte| self.byte(byte));
    }

    pub(crate) fn uid(&mut self, uid: &Uid) {
        self.text(uid.spelled(&mut [0; CANONICAL]));
    }

    fn flag(&mut self, flag: Option<bool>) {
        self.byte(match flag {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        });
    }
}

/// The metadata of an object from a list, a watch or a read, reduced to what decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Object {
    pub uid: Uid,
    /// Empty for cluster scope.
    pub namespace: Name,
    pub name: Name,
    pub resource_version: ResourceVersion,
    pub facts: Facts,
    /// The selectors of guards that match its labels and annotations.
    pub marks: Marks,
}

/// Group and plural resource: the unit in which resource versions are ordered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GroupResource {
    /// Empty for the core group.
    pub group: Name,
    pub resource: Name,
}

impl fmt::Display for GroupResource {
    /// `resource.group`, or only `resource` in the core group, as in kubectl.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.resource) } else { write!(f, "{}.{}", self.resource, self.group) }
    }
}

/// `name.group`, or only `name` in the core group, as in kubectl.
pub fn in_group(name: &str, group: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    [name, dot, group].concat()
}

/// An object by uid and full coordinates, with the data for a request to it. Upstream's `objectReference` embeds an
/// `OwnerReference`, and its `identity` adds a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ObjectRef {
    pub group: Name,
    /// The API version for requests.
    pub version: Name,
    /// The plural name of the resource.
    pub resource: Name,
    pub kind: Name,
    /// Empty for cluster scope.
    pub namespace: Name,
    pub name: Name,
    pub uid: Uid,
}

impl ObjectRef {
    /// The collection the object belongs to.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }

    /// The sort order of answers: kind, namespace, name, and the uid if these are equal.
    pub(crate) fn order(&self) -> (&str, &str, &str, &str, &Uid) {
        (&self.group, &self.kind, &self.namespace, &self.name, &self.uid)
    }
}

impl fmt::Display for ObjectRef {
    /// `Kind/name`, with `namespace/` before the name if there is one: the short form of an object in the tools.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// A kind in one group, as in discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ServedKind {
    pub group_resource: GroupResource,
    pub kind: Name,
    /// The preferred version, used for lists, watches and writes.
    pub version: Name,
    /// The other served versions.
    #[cfg_attr(feature = "serde", serde(default))]
    pub other_versions: Vec<Name>,
    /// Another version has another server, scope or kind, so its objects may be missing in lists of `version`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub split: bool,
    pub namespaced: bool,
    pub access: Access,
    pub backend: Backend,
    /// The kind has the delete verb. The deletion of a namespace's contents includes such kinds.
    pub deletable: bool,
    /// Its singular and short names, in lower case.
    pub names: Vec<Name>,
}

impl ServedKind {
    /// Whether the API server serves this version of the kind.
    pub(crate) fn has_version(&self, version: &str) -> bool {
        *self.version == *version || self.other_versions.iter().any(|other| **other == *version)
    }
}

/// How a kind's objects can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Access {
    /// Listed, watched and deleted: it has a collection in the graph.
    Watched,
    /// Has the list verb, but is not watched: it lacks the watch or delete verb, or the configuration ignores it. Its
    /// objects can be owners.
    Listed,
    /// Has no list verb: only single reads.
    ReadOnly,
}

/// The server of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Backend {
    /// The API server itself, from its own store.
    Main,
    /// A server behind an APIService: its watches may omit objects, its versions may not be comparable, it may ignore
    /// preconditions.
    Aggregated,
}

/// Cuts a text from outside to at most `max_bytes`, at a character boundary.
pub fn clip(text: &str, max_bytes: usize) -> String {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    String::from(&text[..end])
}

/// Splits the references at `indices`. The first part shares its uid with another reference, so it cannot be removed by
/// uid alone.
pub(crate) fn sharing_uid(owners: &[OwnerReference], indices: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut uids: Vec<&Uid> = owners.iter().map(|owner| &owner.uid).collect();
    uids.sort_unstable();
    let shares = |&at: &usize| {
        let first = uids.partition_point(|&uid| *uid < owners[at].uid);
        uids.get(first + 1).is_some_and(|&next| *next == owners[at].uid)
    };
    indices.iter().copied().partition(shares)
}

/// The references of `owners` at `indices`.
pub(crate) fn pick(owners: &[OwnerReference], indices: &[usize]) -> Vec<OwnerReference> {
    indices.iter().filter_map(|&at| owners.get(at).cloned()).collect()
}
