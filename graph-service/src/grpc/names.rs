//! Pages of lists that are ordered by name. A page begins after the last name of the previous page, so the service
//! keeps no state.
//!
//! A token is a format byte, a check sum and that name, in hex. The check sum binds the token to its list and detects
//! changes. It is not secret, because a name grants no right.

use super::pages::{fitting, page_size};
use super::status;
use engine::object::Digest;
use prost::Message;
use tonic::Status;

#[cfg(test)]
mod tests;

/// First byte of a token.
const FORMAT: u8 = 2;
/// Format and check, in hex.
const HEAD_CHARS: usize = 2 + 16;
/// Maximum length of a token. The longest name is that of a collection.
const TOKEN_MAX_CHARS: usize = HEAD_CHARS + 2 * 1024;

/// A page of a list.
#[derive(Debug)]
pub(super) struct Cursor {
    list: &'static str,
    size: usize,
    after: Option<String>,
}

impl Cursor {
    pub(super) fn of(list: &'static str, size: i32, token: &str) -> Result<Cursor, Status> {
        let size = page_size(size)?;
        if token.is_empty() {
            return Ok(Cursor { list, size, after: None });
        }
        let (check, after) = parse(token).ok_or_else(|| status::token_malformed("page_token"))?;
        if check != check_of(list, &after) {
            return Err(status::page_token_mismatch());
        }
        Ok(Cursor { list, size, after: Some(after) })
    }

    /// The page, and the token of the next one. The items come in any order and have different names.
    pub(super) fn page<T: Message>(self, mut items: Vec<T>, name: impl Fn(&T) -> String) -> (Vec<T>, String) {
        if let Some(after) = &self.after {
            items.retain(|item| name(item) > *after);
        }
        items.sort_by_cached_key(&name);
        let count = fitting(items.iter().map(Message::encoded_len), self.size);
        let more = count < items.len();
        items.truncate(count);
        let next = items.last().filter(|_| more).map(|last| token(self.list, &name(last))).unwrap_or_default();
        (items, next)
    }
}

fn check_of(list: &str, name: &str) -> u64 {
    Digest::of(format!("{list}\0{name}").bytes())
}

fn token(list: &str, name: &str) -> String {
    let name_in_hex: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{FORMAT:02x}{:016x}{name_in_hex}", check_of(list, name))
}

fn parse(token: &str) -> Option<(u64, String)> {
    let is_hex = token.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let length = token.len();
    let token = Some(token)
        .filter(|_| is_hex && length.is_multiple_of(2) && (HEAD_CHARS..=TOKEN_MAX_CHARS).contains(&length))?;
    if u8::from_str_radix(&token[..2], 16).ok()? != FORMAT {
        return None;
    }
    let check = u64::from_str_radix(&token[2..HEAD_CHARS], 16).ok()?;
    let byte = |at: usize| u8::from_str_radix(&token[at..at + 2], 16).ok();
    let name: Option<Vec<u8>> = (HEAD_CHARS..length).step_by(2).map(byte).collect();
    Some((check, String::from_utf8(name?).ok()?))
}
