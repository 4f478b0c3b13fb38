//! The processors of a demo beside a browser. A priority does not serve: Linux shares processors evenly between
//! sessions (`sched_autogroup_enabled`), and a browser is a session of its own.

use tokio::runtime::Builder;

/// Leaves a processor to other programs: the threads of the runtime run on all others. This thread, which starts the
/// browser, keeps all, because the browser takes over its processors. On other systems than Linux nothing changes.
pub(super) fn leave_one(threads: &mut Builder) {
    #[cfg(target_os = "linux")]
    linux::leave_one(threads);
    #[cfg(not(target_os = "linux"))]
    let _unchanged = threads;
}

#[cfg(target_os = "linux")]
mod linux {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use tokio::runtime::Builder;

    pub(super) fn leave_one(threads: &mut Builder) {
        // A thread inherits the processors of the thread that starts it, so all get the same ones, not one less each.
        let Some(others) = sched_getaffinity(None).ok().and_then(all_but_one) else { return };
        threads.on_thread_start(move || {
            if let Err(error) = sched_setaffinity(None, &others) {
                tracing::debug!(%error, "cannot leave a processor to the browser; the thread uses all");
            }
        });
    }

    /// All of these processors except the first. `None` if there is no other.
    fn all_but_one(mut processors: CpuSet) -> Option<CpuSet> {
        let first = (0..CpuSet::MAX_CPU).find(|&processor| processors.is_set(processor))?;
        processors.unset(first);
        (processors.count() > 0).then_some(processors)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use tokio::runtime::Handle;

        fn set(processors: &[usize]) -> CpuSet {
            let mut set = CpuSet::new();
            processors.iter().for_each(|&processor| set.set(processor));
            set
        }

        #[test]
        fn one_processor_is_left() {
            for (all, others) in [(&[0, 1, 2][..], Some(&[1, 2][..])), (&[4, 9], Some(&[9])), (&[3], None), (&[], None)]
            {
                assert!(all_but_one(set(all)) == others.map(set), "{all:?}");
            }
        }

        #[test]
        fn threads_of_threads_have_the_same_processors() {
            let mut threads = Builder::new_multi_thread();
            leave_one(&mut threads);
            let runtime = threads.build().unwrap();
            let own = || sched_getaffinity(None).unwrap();
            let outer = runtime
                .spawn_blocking(move || (own(), Handle::current().block_on(tokio::task::spawn_blocking(own)).unwrap()));
            let (first, second) = runtime.block_on(outer).unwrap();
            let expected = all_but_one(own()).unwrap_or_else(own);
            assert!(first == expected && second == expected, "{first:?} and {second:?}");
        }
    }
}
