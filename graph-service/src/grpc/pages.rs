//! Answers in pages: page one pins what was found, the others are cut from that.
//!
//! A token is a format byte, a random number and a place, in hex. The number cannot be guessed, and where callers are told apart a token
//! is good only for whoever got it.

use super::access::{Sight, Whose};
use super::status;
use prost::Message;
use std::any::Any;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

const SIZE_DEFAULT: usize = 100;
const SIZE_MAX: usize = 1000;
/// A page of more than this ends early. What an answer says beside its entries stays below the rest of a MiB.
pub(super) const BYTES_MAX: usize = 960 * 1024;
/// What an entry of a list costs beside its own bytes: its tag and its length.
pub(super) const ENTRY_BYTES: usize = 6;
/// How long an answer is kept for its later pages.
const AGE_MAX: Duration = Duration::from_secs(300);
/// Answers that are kept, at most,
const ANSWERS_MAX: usize = 64;
/// and entries in all of them.
const ENTRIES_MAX: usize = 400_000;
/// First byte of a token.
const FORMAT: u8 = 1;

/// Which page of which question.
#[derive(Debug)]
pub(super) struct Paging {
    question: Question,
    size: usize,
    token: Option<(u128, usize)>,
}

/// What was asked, and by whom: what is kept for one caller is of no use to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    digest: u64,
    whose: Option<Whose>,
}

impl Question {
    pub(super) fn of(asked: &impl Message, sight: &Sight) -> Question {
        Question { digest: digest(&asked.encode_to_vec()), whose: sight.whose() }
    }
}

/// One page.
#[derive(Debug)]
pub(super) struct Page<T, R> {
    pub(super) items: Vec<T>,
    pub(super) next_page_token: String,
    pub(super) rest: R,
}

impl Paging {
    /// `question` is the request without its page.
    pub(super) fn of(question: &impl Message, size: i32, token: &str, sight: &Sight) -> Result<Paging, Status> {
        let size = page_size(size)?;
        let token = if token.is_empty() {
            None
        } else {
            Some(parse(token).ok_or_else(|| status::token_malformed("page_token"))?)
        };
        Ok(Paging { question: Question::of(question, sight), size, token })
    }

    pub(super) fn is_first(&self) -> bool {
        self.token.is_none()
    }
}

/// What was found for questions whose answers have more pages.
#[derive(Debug, Default)]
pub(super) struct Answers {
    kept: Mutex<VecDeque<Kept>>,
    random: RandomState,
}

#[derive(Debug)]
struct Kept {
    number: u128,
    question: Question,
    at: Instant,
    entries: usize,
    answer: Arc<dyn Any + Send + Sync>,
}

#[derive(Debug)]
struct Answer<T, R> {
    items: Vec<T>,
    rest: R,
}

impl Answers {
    /// The page that was asked for; `first` finds everything, and is called for page one only.
    pub(super) async fn page<T, R>(
        &self,
        paging: Paging,
        first: impl AsyncFnOnce() -> Result<(Vec<T>, R), Status>,
    ) -> Result<Page<T, R>, Status>
    where
        T: Message + Clone + 'static,
        R: Clone + Send + Sync + 'static,
    {
        let (number, from, answer) = match paging.token {
            Some((number, from)) => (Some(number), from, self.get(number, &paging.question)?),
            None => {
                let (items, rest) = first().await?;
                (None, 0, Arc::new(Answer { items, rest }))
            }
        };
        let end = from + fitting(answer.items.get(from..).unwrap_or_default(), paging.size);
        let page = answer.items.get(from..end).unwrap_or_default().to_vec();
        let rest = answer.rest.clone();
        let next_page_token = if end < answer.items.len() {
            let entries = answer.items.len();
            let number = number.unwrap_or_else(|| self.keep(paging.question, entries, answer));
            format!("{FORMAT:02x}{number:032x}{end:08x}")
        } else {
            String::new()
        };
        Ok(Page { items: page, next_page_token, rest })
    }

    fn get<T, R>(&self, number: u128, question: &Question) -> Result<Arc<Answer<T, R>>, Status>
    where
        T: Send + Sync + 'static,
        R: Send + Sync + 'static,
    {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| kept.at.elapsed() < AGE_MAX);
        let is_it = |kept: &&Kept| kept.number == number && kept.question.whose == question.whose;
        let found = kept.iter().find(is_it).ok_or_else(status::page_token_expired)?;
        let answer = Arc::clone(&found.answer).downcast().ok().filter(|_| found.question == *question);
        answer.ok_or_else(status::page_token_mismatch)
    }

    fn keep(&self, question: Question, entries: usize, answer: Arc<dyn Any + Send + Sync>) -> u128 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let random = |salt: u8| u128::from(self.random.hash_one((salt, question.digest, Instant::now(), kept.len())));
        let number = random(0) << 64 | random(1);
        kept.push_back(Kept { number, question, at: Instant::now(), entries, answer });
        // The newest stays, however large it is.
        while kept.len() > 1
            && (kept.len() > ANSWERS_MAX || kept.iter().map(|kept| kept.entries).sum::<usize>() > ENTRIES_MAX)
        {
            kept.pop_front();
        }
        number
    }
}

/// Entries of a page, of what a request says.
pub(super) fn page_size(wanted: i32) -> Result<usize, Status> {
    let size = usize::try_from(wanted).map_err(|_| status::bad_field("page_size", "is negative"))?;
    Ok(if size == 0 { SIZE_DEFAULT } else { size.min(SIZE_MAX) })
}

/// How many of the items make a page.
pub(super) fn fitting(items: &[impl Message], size: usize) -> usize {
    let mut bytes = 0;
    let fits = |item: &&_| {
        bytes += Message::encoded_len(*item) + ENTRY_BYTES;
        bytes <= BYTES_MAX
    };
    let count = items.iter().take(size).take_while(fits).count();
    // One that is larger than a page is a page.
    count.max(usize::from(!items.is_empty()))
}

pub(super) fn parse(token: &str) -> Option<(u128, usize)> {
    let hex = token.is_ascii() && token.len() == 2 + 32 + 8;
    let token = Some(token).filter(|_| hex)?;
    if u8::from_str_radix(&token[..2], 16).ok()? != FORMAT {
        return None;
    }
    Some((u128::from_str_radix(&token[2..34], 16).ok()?, usize::from_str_radix(&token[34..], 16).ok()?))
}

/// FNV-1a: tells the questions of one caller apart, no more.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let step = |digest: u64, &byte: &u8| (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
