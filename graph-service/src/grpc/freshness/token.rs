//! Consistency tokens: the cluster, the history, and the position of each collection.
//!
//! A token names collections by digest, which keeps it small.

use engine::object::{Digest, GroupResource, ResourceVersion};
use prost::Message;

/// First byte of a token.
const FORMAT: u8 = 1;
/// Maximum size of a token. It allows many more collections than a cluster serves.
const BYTES_MAX: usize = 256 * 1024;

/// The contents of a token.
#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct Token {
    #[prost(string, tag = "1")]
    pub(super) cluster_uid: String,
    /// The process that made the token.
    #[prost(fixed64, tag = "2")]
    pub(super) process: u64,
    /// The number of store restores that the process had seen.
    #[prost(uint64, tag = "3")]
    pub(super) histories: u64,
    #[prost(fixed64, repeated, tag = "4")]
    pub(super) collections: Vec<u64>,
    /// The positions of `collections`; 0 for positions that are not ordered numbers, or too large for the age of the
    /// store.
    #[prost(uint64, repeated, tag = "5")]
    pub(super) positions: Vec<u64>,
    /// By index: positions that are not numbers of 64 bits.
    #[prost(btree_map = "uint32, string", tag = "6")]
    pub(super) texts: std::collections::BTreeMap<u32, String>,
}

impl Token {
    pub(super) fn put(&mut self, collection: &GroupResource, position: &ResourceVersion) {
        let text = position.to_string();
        let number = text.parse::<u64>().ok().filter(|number| *number > 0 && position.is_ordered());
        if number.is_none() {
            self.texts.insert(u32::try_from(self.collections.len()).unwrap_or(u32::MAX), text);
        }
        self.collections.push(digest(collection));
        self.positions.push(number.unwrap_or(0));
    }

    /// The digests of the collections, with their positions.
    pub(in crate::grpc) fn bounds(&self) -> impl Iterator<Item = (u64, ResourceVersion)> + '_ {
        (0_u32..).zip(self.collections.iter().zip(&self.positions)).map(|(at, (&collection, number))| {
            let position = match self.texts.get(&at) {
                Some(text) => ResourceVersion::parse(text),
                None => ResourceVersion::parse(&number.to_string()),
            };
            (collection, position)
        })
    }

    pub(in crate::grpc) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        self.encode(&mut bytes).expect("a vector has room");
        bytes
    }

    /// Reads a token. `None` if no version of this service wrote the bytes.
    pub(in crate::grpc) fn read(bytes: &[u8]) -> Option<Token> {
        let (&format, rest) = bytes.split_first()?;
        let token = Token::decode(rest).ok().filter(|_| format == FORMAT && bytes.len() <= BYTES_MAX)?;
        (token.collections.len() == token.positions.len()).then_some(token)
    }
}

/// The digest of both names.
pub(super) fn digest(collection: &GroupResource) -> u64 {
    Digest::of(collection.group.bytes().chain([0]).chain(collection.resource.bytes()))
}
