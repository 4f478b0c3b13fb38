//! The bound on the lists of an entry: a small file must not become a large entry.

/// Maximum number of elements in all lists of an entry together. One byte in a file may be an element of fifty bytes in
/// memory. No input of the service has as many elements.
pub(super) const ELEMENTS_MAX: usize = 1 << 21;

/// The words for an entry with more elements.
pub(super) fn too_many() -> String {
    format!("an entry has lists of more than {ELEMENTS_MAX} elements")
}

/// Whether the first value of these bytes has more elements than an entry may have. Bytes that are no value are left to
/// the decoder.
pub(super) fn are_too_many(bytes: &[u8]) -> bool {
    // An element has a byte at least.
    if bytes.len() <= ELEMENTS_MAX {
        return false;
    }
    let (mut rest, mut values, mut elements) = (bytes, 1_u64, 0_u64);
    while values > 0
        && let Some((&marker, after)) = rest.split_first()
    {
        let width = match marker {
            0xc4 | 0xc7 | 0xd9 => 1,
            0xc5 | 0xc8 | 0xda | 0xdc | 0xde => 2,
            0xc6 | 0xc9 | 0xdb | 0xdd | 0xdf => 4,
            _ => 0,
        };
        let Some((number, after)) = after.split_at_checked(width) else { break };
        let number = number.iter().fold(0, |number, &byte| (number << 8) | u64::from(byte));
        let low = |bits: u8| u64::from(marker & bits);
        // The bytes of the value, or its elements, or its fields.
        let (length, list, fields) = match marker {
            0x80..=0x8f => (0, 0, low(0x0f)),
            0x90..=0x9f => (0, low(0x0f), 0),
            0xa0..=0xbf => (low(0x1f), 0, 0),
            0xc4..=0xc6 | 0xd9..=0xdb => (number, 0, 0),
            0xc7..=0xc9 => (number + 1, 0, 0),
            0xcc | 0xd0 => (1, 0, 0),
            0xcd | 0xd1 => (2, 0, 0),
            0xca | 0xce | 0xd2 => (4, 0, 0),
            0xcb | 0xcf | 0xd3 => (8, 0, 0),
            0xd4..=0xd8 => ((1 << (marker - 0xd4)) + 1, 0, 0),
            0xdc | 0xdd => (0, number, 0),
            0xde | 0xdf => (0, 0, number),
            _ => (0, 0, 0),
        };
        elements += list;
        if elements > ELEMENTS_MAX as u64 {
            return true;
        }
        values = values - 1 + list + 2 * fields;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(left) = after.get(length..) else { break };
        rest = left;
    }
    false
}
