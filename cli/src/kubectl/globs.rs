//! Patterns such as `Pod,!*Set`, as in kubectl-tree for kinds and groups.

/// Checks one pattern. The error is a sentence.
pub(super) fn pattern(text: &str) -> Result<String, String> {
    let name = text.strip_prefix('!').unwrap_or(text);
    let is_good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "*?.-".contains(c));
    if is_good { Ok(text.to_owned()) } else { Err("expected a pattern such as Pod, '*Set' or '!Secret'".to_owned()) }
}

/// Patterns. Those with `!` exclude.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Globs {
    wanted: Vec<String>,
    unwanted: Vec<String>,
}

impl Globs {
    pub(super) fn of(patterns: &[String]) -> Globs {
        let mut globs = Globs::default();
        for pattern in patterns {
            let lower = pattern.to_lowercase();
            match lower.strip_prefix('!') {
                Some(not) => globs.unwanted.push(not.to_owned()),
                None => globs.wanted.push(lower),
            }
        }
        globs
    }

    /// Whether a text matches one of the including patterns, if there are any, and none of the excluding ones.
    pub(super) fn admits(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let fits = |patterns: &[String]| patterns.iter().any(|pattern| fits(pattern.as_bytes(), text.as_bytes()));
        (self.wanted.is_empty() || fits(&self.wanted)) && !fits(&self.unwanted)
    }
}

/// `*` stands for anything, `?` for one character.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut of, mut star) = (0, 0, None);
    while at < text.len() {
        match pattern.get(of) {
            Some(b'*') => {
                star = Some((of, at));
                of += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[at] => {
                at += 1;
                of += 1;
            }
            Some(_) | None => match star {
                Some((back, from)) => {
                    star = Some((back, from + 1));
                    of = back + 1;
                    at = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[of..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::{Globs, pattern};

    #[test]
    fn a_pattern_that_matches_nothing_is_refused() {
        for good in ["Pod", "*Set", "!Daemon*", "*.k8s.io", "core", "cert-manager.io", "Po?"] {
            assert_eq!(pattern(good).as_deref(), Ok(good));
        }
        for wrong in ["", "!", "[", "Pod Set", "!!Pod", "a/b"] {
            assert!(pattern(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn patterns_want_and_take_away() {
        let globs = |patterns: &[&str]| Globs::of(&patterns.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        assert!(globs(&[]).admits("Pod"));
        let some = globs(&["pod", "*Set", "!Daemon*"]);
        let admitted = ["Pod", "ReplicaSet", "DaemonSet", "Secret", "PodTemplate"].map(|kind| some.admits(kind));
        assert_eq!(admitted, [true, true, false, false, false]);
        assert!(globs(&["!pod"]).admits("Secret") && !globs(&["!pod"]).admits("Pod"));
        assert!(globs(&["a*b?c*"]).admits("aXXbYbZcQ") && !globs(&["a*b?c"]).admits("ab"));
    }
}
