//! Names of objects, each stored once in a few large pages. Most have about two dozen bytes. A heap allocation for each
//! name would double that.

use crate::paged_vec::PagedVec;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Alignment of texts.
const GRAIN: usize = 8;
const PAGE: usize = 64 * 1024;
/// Maximum length of a text in the pages. A longer text is stored separately. No Kubernetes name is that long.
const SHORT_MAX: usize = 255;
/// Number of size classes, by grains. A text includes its length.
const SIZES: usize = (SHORT_MAX + 1) / GRAIN + 1;
const GRAINS_PER_PAGE: usize = PAGE / GRAIN;
/// Marks a long text.
const LONG: u32 = 1 << 31;

/// Identifies a text. The owner of the id returns it exactly once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextId(u32);

#[derive(Debug)]
pub(super) struct Texts {
    pages: Vec<Box<[u8]>>,
    /// Used grains of the last page.
    used: usize,
    /// Freed room, by grains.
    free: [PagedVec<u32>; SIZES],
    long: Vec<Box<str>>,
    free_long: Vec<u32>,
}

impl Texts {
    pub(super) fn new() -> Texts {
        Texts {
            pages: Vec::new(),
            used: 0,
            free: [const { PagedVec::new() }; SIZES],
            long: Vec::new(),
            free_long: Vec::new(),
        }
    }

    /// Bytes of the pages.
    pub(super) fn footprint(&self) -> usize {
        self.pages.len() * PAGE
    }

    pub(super) fn put(&mut self, text: &str) -> TextId {
        if text.len() > SHORT_MAX {
            return self.put_long(text);
        }
        let grains = grains(text.len());
        let at = match self.free[grains].pop() {
            Some(at) => at as usize,
            None => self.room(grains),
        };
        let (page, start) = (at / GRAINS_PER_PAGE, at % GRAINS_PER_PAGE * GRAIN);
        let room = &mut self.pages[page][start..start + 1 + text.len()];
        room[0] = text.len() as u8;
        room[1..].copy_from_slice(text.as_bytes());
        TextId(u32::try_from(at).expect("fewer than 16 GiB of names"))
    }

    pub(super) fn get(&self, id: TextId) -> &str {
        if id.0 & LONG != 0 {
            return &self.long[(id.0 ^ LONG) as usize];
        }
        let (page, start) = (id.0 as usize / GRAINS_PER_PAGE, id.0 as usize % GRAINS_PER_PAGE * GRAIN);
        let page = &self.pages[page];
        let end = start + 1 + usize::from(page[start]);
        core::str::from_utf8(&page[start + 1..end]).expect("the pages hold valid UTF-8")
    }

    /// Reads one byte of the page of this text, so that the processor loads the page early.
    pub(super) fn glance(&self, id: TextId) -> u64 {
        let (page, start) = (id.0 as usize / GRAINS_PER_PAGE, id.0 as usize % GRAINS_PER_PAGE * GRAIN);
        self.pages.get(page).map_or(0, |page| u64::from(page[start]))
    }

    pub(super) fn give_back(&mut self, id: TextId) {
        if id.0 & LONG != 0 {
            self.long[(id.0 ^ LONG) as usize] = Box::from("");
            self.free_long.push(id.0);
        } else {
            let grains = grains(self.get(id).len());
            self.free[grains].push(id.0);
        }
    }

    /// Allocates room after all texts.
    fn room(&mut self, grains: usize) -> usize {
        if self.pages.is_empty() || self.used + grains > GRAINS_PER_PAGE {
            self.pages.push(alloc::vec![0; PAGE].into_boxed_slice());
            self.used = 0;
        }
        let at = (self.pages.len() - 1) * GRAINS_PER_PAGE + self.used;
        self.used += grains;
        assert!(at < LONG as usize, "fewer than 16 GiB of names");
        at
    }

    fn put_long(&mut self, text: &str) -> TextId {
        let text = Box::from(text);
        match self.free_long.pop() {
            Some(at) => {
                self.long[(at ^ LONG) as usize] = text;
                TextId(at)
            }
            None => {
                self.long.push(text);
                TextId(u32::try_from(self.long.len() - 1).expect("fewer than 2^31 long names") | LONG)
            }
        }
    }
}

/// Grains of a text and its length.
fn grains(bytes: usize) -> usize {
    (bytes + 1).div_ceil(GRAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jitter::Rng;
    use alloc::collections::BTreeMap;
    use alloc::string::String;

    #[test]
    fn what_was_put_is_there_until_it_is_given_back() {
        for seed in 0..50 {
            let (mut random, mut texts, mut known) = (Rng::new(seed), Texts::new(), BTreeMap::new());
            for step in 0..2000_u32 {
                if random.next().is_multiple_of(3)
                    && let Some((key, (id, text))) = known.pop_first()
                {
                    let _: u32 = key;
                    assert_eq!(texts.get(id), text, "seed {seed}");
                    texts.give_back(id);
                }
                let length = [0, 7, 8, 26, 254, 255, 256, 3000][(random.next() % 8) as usize];
                let letter = char::from(b'a' + (random.next() % 26) as u8);
                let text: String = core::iter::repeat_n(letter, length).collect();
                known.insert(step, (texts.put(&text), text));
                assert!(known.values().all(|(id, text)| texts.get(*id) == text) || step % 100 != 0, "seed {seed}");
            }
            assert!(known.values().all(|(id, text)| texts.get(*id) == text), "seed {seed}");
        }
    }

    #[test]
    fn room_is_used_again() {
        let mut texts = Texts::new();
        for _ in 0..3 {
            let ids: Vec<TextId> = (0..10_000).map(|number| texts.put(&alloc::format!("pod-{number}"))).collect();
            ids.into_iter().for_each(|id| texts.give_back(id));
        }
        assert!(texts.pages.len() <= 3, "{} pages", texts.pages.len());
    }
}
