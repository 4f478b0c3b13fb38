//! Numbers with their noun.

/// `1 object`, `2 objects`.
pub(crate) fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// `1 object is`, `2 objects are`.
pub(crate) fn are(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{} {}", counted(count, noun), if count == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "object")), ["0 objects", "1 object", "2 objects"]);
        assert_eq!([0, 1, 2].map(|count| are(count, "object")), ["0 objects are", "1 object is", "2 objects are"]);
    }
}
