//! Fuzz entry points. The checksum of a block would keep nearly every changed file from the decoder of entries.

use super::{MAGIC, write};

/// A file with one block of this content, which has a right checksum.
pub fn file_of(content: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    write::pack(content, &mut block).expect("the content of a fuzz test is small");
    [&MAGIC[..], &block].concat()
}
