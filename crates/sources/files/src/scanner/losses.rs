//! Removal of objects that files have lost: at once, once the file is quiet, or once a second read confirms
//! it to the guard.

use super::{ChangedFile, Known, Pending, Scanner};
use crate::path::FilePath;
use crate::state::PreparedFile;
use crate::walk::Signature;
use pilotfish_config::SourceEvent;
use pilotfish_model::ObjectKey;
use pilotfish_runtime::{LossVerdict, ReadExtent};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Instant, SystemTime};

impl Scanner {
    /// True while objects are kept in force that files lack.
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Accepts the loss on behalf of an operator: held files are read again now, and their content is put in
    /// force.
    pub(crate) fn accept(&mut self, now: Instant) {
        self.guard.accept(now);
        self.read_held(now);
    }

    fn read_held(&mut self, now: Instant) {
        for path in self.held.keys() {
            if let Some(pending) = self.pending.get_mut(path) {
                pending.due = pending.due.min(now);
            }
        }
    }

    /// Time at which objects that a file lacks are removed, unless it is written to before; `None` to remove
    /// them at once. The file may still be open for writing: if it was written slowly and closed, perhaps by
    /// another program, if it arrived with its folder before that was watched, or if it was truncated.
    pub(super) fn quiet(
        &self,
        path: &FilePath,
        pending: Pending,
        (signature, is_empty): (Option<Signature>, bool),
        (now, clock): (Instant, SystemTime),
    ) -> Option<Instant> {
        let signature = signature?;
        let left = self.timing.confirm.checked_sub(signature.age(clock)?).filter(|left| !left.is_zero())?;
        let known = self.known.get(path)?.signature;
        let is_emptied = is_empty && known.is_some_and(|known| known.identity() == signature.identity());
        // The target of a link existed before the link.
        let is_complete = pending.is_closed || self.is_linked(path);
        (is_emptied || !is_complete).then(|| now + left)
    }

    /// True if the file, or a folder between it and its root, is a link, as in a mounted ConfigMap.
    fn is_linked(&self, path: &FilePath) -> bool {
        let Some(root) = super::root_of(&self.roots, path) else { return false };
        path.ancestors().take_while(|above| above.starts_with(&root.path)).any(Path::is_symlink)
    }

    /// Puts changed files in force. Objects that they lack are kept for now if most would be removed, since a
    /// moved or unmounted folder resembles an emptied one, and while their file may be open for writing.
    pub(super) fn commit_guarded(&mut self, mut files: Vec<ChangedFile>, now: Instant) -> Vec<SourceEvent> {
        let was_held = self.guard.held().is_some();
        if files.is_empty() && !was_held {
            return Vec::new();
        }
        let lost = self.state.lost(files.iter().map(|changed| &changed.file), &self.held);
        let until = match self.judge(&files, &lost, now) {
            LossVerdict::Believe => None,
            LossVerdict::Hold(held) if held.until > now => Some(held.until),
            LossVerdict::Hold(_) => Some(self.postpone_held(now)),
        };
        for ChangedFile { file, quiet } in &mut files {
            // A loss that the guard held is confirmed.
            if let Some(due) = until.or(quiet.filter(|_| !was_held)) {
                self.keep(file, &lost, (now, due));
            }
        }
        // Held objects that moved to other files are in force there.
        let is_elsewhere = self.held.values().flatten().any(|key| !lost.contains(key));
        if is_elsewhere && !files.is_empty() {
            self.read_held(now);
        }
        self.state.commit(files.into_iter().map(|changed| changed.file))
    }

    fn judge(&mut self, files: &[ChangedFile], lost: &BTreeSet<ObjectKey>, now: Instant) -> LossVerdict {
        let before = self.state.objects().len();
        let after = before.saturating_sub(lost.len());
        if self.is_lone_removal(files, lost) {
            self.guard.named(lost.len());
            return self.guard.judge(after, after, now, ReadExtent::Full);
        }
        // Held files that were not read again confirm nothing.
        let extent = if self.held.is_empty() { ReadExtent::Full } else { ReadExtent::Partial };
        self.guard.judge(before, after, now, extent)
    }

    /// True if only one file loses objects, because it was deleted from a folder that still exists.
    fn is_lone_removal(&self, files: &[ChangedFile], lost: &BTreeSet<ObjectKey>) -> bool {
        let is_losing = |file: &&PreparedFile| self.state.dropped(file).any(|key| lost.contains(key));
        let mut losing = files.iter().map(|changed| &changed.file).filter(is_losing);
        let (first, second) = (losing.next(), losing.next());
        let is_removed =
            |file: &PreparedFile| file.is_absent() && file.path.parent().is_some_and(Path::is_dir);
        let others =
            !self.held.is_empty() || self.pending.values().any(|pending| pending.absent_since.is_some());
        !others && second.is_none() && first.is_some_and(is_removed)
    }

    /// Lets a file keep its objects among `lost` until it is read again.
    fn keep(&mut self, file: &mut PreparedFile, lost: &BTreeSet<ObjectKey>, (now, due): (Instant, Instant)) {
        let absent_since = file.is_absent().then_some(now);
        let kept = self.state.keep(file, lost);
        if kept.is_empty() {
            return;
        }
        self.known.entry(file.path.clone()).or_insert(Known::UNREAD).is_settled = false;
        self.pending.insert(file.path.clone(), Pending { absent_since, ..Pending::at(due) });
        self.held.insert(file.path.clone(), kept);
    }

    /// Sets one time at which all held files are read: reading some of them confirms nothing.
    fn postpone_held(&mut self, now: Instant) -> Instant {
        let due = now + self.timing.confirm;
        for path in self.held.keys() {
            if let Some(pending) = self.pending.get_mut(path) {
                pending.due = due;
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{scanner, service};
    use super::super::{Changes, Trigger};
    use super::*;
    use crate::change_queue::WriteState;
    use std::fs;
    use std::time::Duration;

    /// A folder `path/all` with five services, and `path/other` with two, read.
    fn seven(path: &Path) -> (Scanner, Instant) {
        for (folder, names) in [("all", &["a", "b", "c", "d", "e"][..]), ("other", &["f", "g"])] {
            fs::create_dir(path.join(folder)).unwrap();
            names.iter().for_each(|name| service(&path.join(folder), name, 80));
        }
        let mut scanner = scanner(path);
        scanner.timing.confirm = Duration::ZERO;
        let now = Instant::now();
        assert_eq!(scanner.rescan(now, SystemTime::now(), Trigger::Start).events.len(), 7);
        (scanner, now)
    }

    fn events(scanner: &mut Scanner, now: Instant, everything: bool) -> usize {
        let changes = Changes { everything, ..Changes::default() };
        scanner.poll_changes(changes, now, SystemTime::now()).events.len()
    }

    const WAIT: Duration = Duration::from_secs(10);

    #[test]
    fn folder_that_is_moved_away_keeps_its_objects_until_a_second_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (mut scanner, now) = seven(path);
        let elsewhere = tempfile::tempdir().unwrap();
        fs::rename(path.join("all"), elsewhere.path().join("all")).unwrap();
        assert_eq!(events(&mut scanner, now, true), 0);
        assert_eq!(scanner.losses.held().map(|held| (held.before, held.after)), Some((7, 2)));
        assert_eq!(scanner.next_due(), Some(now + WAIT));
        assert_eq!(events(&mut scanner, now + WAIT / 2, true), 0, "a walk meanwhile");
        assert_eq!(events(&mut scanner, now + WAIT, false), 5, "the second read says so again");
        assert_eq!((scanner.losses.held(), scanner.is_holding()), (None, false));
    }

    #[test]
    fn folder_that_comes_back_is_read_at_once_and_lost_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (mut scanner, now) = seven(path);
        let elsewhere = tempfile::tempdir().unwrap();
        fs::rename(path.join("all"), elsewhere.path().join("all")).unwrap();
        assert_eq!(events(&mut scanner, now, true), 0);
        fs::rename(elsewhere.path().join("all"), path.join("all")).unwrap();
        service(&path.join("all"), "a", 8_080);
        assert_eq!(events(&mut scanner, now + WAIT / 5, true), 1, "the one that differs");
        assert_eq!((scanner.losses.held(), scanner.state().objects().len()), (None, 7));
    }

    #[test]
    fn accepted_loss_of_files_takes_effect_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (mut scanner, now) = seven(folder.path());
        fs::remove_dir_all(folder.path().join("all")).unwrap();
        assert_eq!(events(&mut scanner, now, true), 0);
        scanner.accept(now + WAIT / 10);
        assert_eq!(events(&mut scanner, now + WAIT / 10, false), 5);
    }

    #[test]
    fn files_that_are_removed_by_hand_take_effect_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (mut scanner, now) = seven(path);
        // Half of all or less.
        ["a", "b", "c"]
            .iter()
            .for_each(|name| fs::remove_file(path.join(format!("all/{name}.yaml"))).unwrap());
        assert_eq!(events(&mut scanner, now, true), 3);
        // Fewer than three objects.
        ["d", "e"].iter().for_each(|name| fs::remove_file(path.join(format!("all/{name}.yaml"))).unwrap());
        assert_eq!(events(&mut scanner, now + 2 * WAIT, true), 2);
        // One file, whatever is in it.
        let text: String = (0..20)
            .map(|n| format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: s{n}}}\nspec: {{ports: [{{port: 80}}]}}\n"))
            .collect();
        fs::write(path.join("many.yaml"), text).unwrap();
        assert_eq!(events(&mut scanner, now + 4 * WAIT, true), 20);
        fs::remove_file(path.join("many.yaml")).unwrap();
        assert_eq!(events(&mut scanner, now + 6 * WAIT, true), 20);
        assert_eq!(scanner.losses.holds(), 0);
    }

    #[test]
    fn objects_that_move_to_other_files_are_no_loss() {
        let folder = tempfile::tempdir().unwrap();
        let (mut scanner, now) = seven(folder.path());
        fs::rename(folder.path().join("all"), folder.path().join("renamed")).unwrap();
        events(&mut scanner, now, true);
        assert_eq!((scanner.losses.holds(), scanner.state().objects().len()), (0, 7));
        assert_eq!(scanner.state().files(), 7);
    }

    /// Services `s0`, `s1`, ... with these ports, in one text.
    fn services(ports: &[u16]) -> String {
        let document = |(n, port)| {
            format!(
                "---\napiVersion: v1\nkind: Service\nmetadata: {{name: s{n}}}\nspec: {{ports: [{{port: {port}}}]}}\n"
            )
        };
        ports.iter().enumerate().map(document).collect()
    }

    /// Number of events after the path came into a state, some time after the file was written.
    fn changed(scanner: &mut Scanner, path: &Path, state: WriteState, now: Instant, age: Duration) -> usize {
        let changes = Changes { paths: [(path.to_owned(), state)].into(), ..Changes::default() };
        scanner.poll_changes(changes, now, SystemTime::now() + age).events.len()
    }

    fn closed(scanner: &mut Scanner, path: &Path, text: &str, now: Instant) -> usize {
        fs::write(path, text).unwrap();
        changed(scanner, path, WriteState::Complete, now, Duration::ZERO)
    }

    #[test]
    fn file_that_is_cut_off_keeps_its_objects_until_a_second_read() {
        let cuts = [(0, String::new()), (3, services(&[80; 3])), (3, services(&[80, 8_080, 80]))];
        for (left, cut) in cuts {
            let is_changed = usize::from(cut.contains("8080"));
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("all.yaml");
            fs::write(&path, services(&[80; 10])).unwrap();
            let mut scanner = scanner(folder.path());
            let now = Instant::now();
            assert_eq!(scanner.rescan(now, SystemTime::now(), Trigger::Start).events.len(), 10);
            assert_eq!(closed(&mut scanner, &path, &cut, now), is_changed, "objects that are there: {cut}");
            assert_eq!(scanner.losses.held().map(|held| (held.before, held.after)), Some((10, left)));
            // It is cut off again after it was whole: another loss.
            let now = now + WAIT / 2;
            assert_eq!(closed(&mut scanner, &path, &services(&[80; 10]), now), is_changed);
            assert_eq!((scanner.losses.held(), scanner.is_holding()), (None, false));
            assert_eq!(closed(&mut scanner, &path, &cut, now), is_changed);
            assert_eq!(events(&mut scanner, now + WAIT / 2, false), 0);
            assert_eq!(scanner.state().objects().len(), 10);
            assert_eq!(events(&mut scanner, now + WAIT, false), 10 - left, "the second read says so again");
            assert_eq!((scanner.losses.held(), scanner.is_holding()), (None, false));
        }
    }

    #[test]
    fn objects_lost_by_several_files_count_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (mut scanner, now) = seven(path);
        fs::write(path.join("all/a.yaml"), "").unwrap();
        ["b", "c"].iter().for_each(|name| fs::remove_file(path.join(format!("all/{name}.yaml"))).unwrap());
        fs::write(path.join("other/f.yaml"), "").unwrap();
        assert_eq!(events(&mut scanner, now, true), 0);
        assert_eq!(scanner.losses.held().map(|held| (held.before, held.after)), Some((7, 3)));
        service(path, "h", 80);
        service(&path.join("all"), "b", 80);
        assert_eq!(events(&mut scanner, now + WAIT / 2, true), 1, "new objects take effect");
        assert_eq!(events(&mut scanner, now + WAIT, false), 3, "those that are still missing");
        assert_eq!((scanner.losses.held(), scanner.state().objects().len()), (None, 5));
    }

    #[test]
    fn held_objects_that_other_files_have_by_now_are_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (mut scanner, now) = seven(path);
        let elsewhere = tempfile::tempdir().unwrap();
        fs::rename(path.join("all"), elsewhere.path().join("all")).unwrap();
        assert_eq!(events(&mut scanner, now, true), 0);
        service(&path.join("other"), "a", 8_080);
        assert_eq!(events(&mut scanner, now + WAIT / 5, true), 0, "the one that is away is the first");
        assert_eq!(scanner.next_due(), Some(now + WAIT / 5));
        assert_eq!(events(&mut scanner, now + WAIT / 5, false), 1, "the new version counts");
        assert_eq!((scanner.state().objects().len(), scanner.next_due()), (7, Some(now + WAIT)));
        assert_eq!(events(&mut scanner, now + WAIT, false), 4);
    }

    #[test]
    fn held_losses_do_not_depend_on_a_file_that_stays_open_or_unread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (mut scanner, now) = seven(path);
        let (a, b) = (path.join("all/a.yaml"), path.join("all/b.yaml"));
        ["a", "b", "c", "d"]
            .iter()
            .for_each(|name| fs::write(path.join(format!("all/{name}.yaml")), "").unwrap());
        assert_eq!(events(&mut scanner, now, true), 0);
        assert_eq!(changed(&mut scanner, &a, WriteState::Writing, now, Duration::ZERO), 0);
        // A second read of one file alone confirms nothing, and is repeated later.
        scanner.timing.confirm = WAIT / 5;
        let late = now + WAIT;
        for path in ["c", "d"].map(|name| FilePath::from(&*path.join(format!("all/{name}.yaml")))) {
            scanner.pending.get_mut(&path).unwrap().due = late + WAIT / 10;
        }
        assert_eq!(changed(&mut scanner, &b, WriteState::Complete, late, Duration::ZERO), 0);
        assert_eq!(scanner.next_due(), Some(late + WAIT / 5), "all at one time");
        assert_eq!(events(&mut scanner, late + WAIT / 5, false), 3);
        assert_eq!((scanner.losses.held(), scanner.state().objects().len()), (None, 4));
        assert_eq!(changed(&mut scanner, &a, WriteState::Complete, late + WAIT, WAIT), 1);
    }

    #[test]
    fn object_that_is_missing_in_a_file_written_slowly_is_taken_away_once_the_file_is_quiet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all.yaml");
        fs::write(&path, services(&[80; 10])).unwrap();
        let mut scanner = scanner(folder.path());
        scanner.timing.settle = Duration::from_millis(80);
        let (start, confirm) = (Instant::now(), scanner.timing.confirm);
        assert_eq!(scanner.rescan(start, SystemTime::now(), Trigger::Start).events.len(), 10);
        assert_eq!(changed(&mut scanner, &path, WriteState::Writing, start, Duration::ZERO), 0);
        let now = start + confirm / 4;
        assert_eq!(closed(&mut scanner, &path, &services(&[8_080; 8]), now), 8, "changes count at once");
        assert_eq!(
            closed(&mut scanner, &path, &services(&[8_080; 8]), now),
            0,
            "one more close tells nothing"
        );
        // The slow writer goes on.
        assert_eq!(changed(&mut scanner, &path, WriteState::Writing, start + confirm / 2, confirm / 2), 0);
        assert_eq!(scanner.next_due(), Some(start + confirm / 2 + scanner.timing.write_timeout));
        assert_eq!(scanner.state().objects().len(), 10);
        let later = start + 2 * confirm;
        assert_eq!(closed(&mut scanner, &path, &services(&[8_080; 9]), later), 1);
        let due = scanner.next_due().unwrap();
        assert!(due > later && due <= later + confirm);
        assert_eq!(
            changed(&mut scanner, &path, WriteState::Touched, later, confirm / 2),
            0,
            "read too early"
        );
        assert_eq!(changed(&mut scanner, &path, WriteState::Touched, later + confirm, confirm), 1);
        assert_eq!((scanner.next_due(), scanner.state().objects().len()), (None, 9));
        assert_eq!(scanner.losses.holds(), 0);
    }

    #[test]
    fn object_that_is_missing_in_a_file_written_quickly_or_renamed_is_taken_away_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (path, temporary) = (folder.path().join("all.yaml"), folder.path().join("all.tmp"));
        fs::write(&path, services(&[80; 10])).unwrap();
        let mut scanner = scanner(folder.path());
        scanner.timing.settle = Duration::from_millis(80);
        let now = Instant::now();
        assert_eq!(scanner.rescan(now, SystemTime::now(), Trigger::Start).events.len(), 10);
        assert_eq!(closed(&mut scanner, &path, &services(&[80; 9]), now), 1);
        assert_eq!(changed(&mut scanner, &path, WriteState::Writing, now, Duration::ZERO), 0);
        assert_eq!(closed(&mut scanner, &path, &services(&[80; 8]), now + Duration::from_millis(40)), 1);
        // The file that is open is no longer at the path.
        assert_eq!(changed(&mut scanner, &path, WriteState::Writing, now, Duration::ZERO), 0);
        fs::write(&temporary, services(&[80; 7])).unwrap();
        fs::rename(&temporary, &path).unwrap();
        assert_eq!(changed(&mut scanner, &path, WriteState::Complete, now + WAIT, Duration::ZERO), 1);
        assert_eq!((scanner.is_holding(), scanner.losses.holds()), (false, 0));
    }

    #[test]
    fn losses_of_files_that_wait_to_be_quiet_count_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (mut scanner, now) = seven(path);
        scanner.timing.confirm = WAIT / 5;
        for (name, held) in [("a", None), ("b", None), ("c", None), ("d", Some((7, 3)))] {
            assert_eq!(closed(&mut scanner, &path.join(format!("all/{name}.yaml")), "", now), 0);
            assert_eq!(scanner.losses.held().map(|held| (held.before, held.after)), held, "{name}");
        }
    }

    #[test]
    fn file_of_a_replaced_folder_loses_objects_once_it_is_closed_or_quiet() {
        let folder = tempfile::tempdir().unwrap();
        let sub = folder.path().join("sub");
        let file = sub.join("a.yaml");
        fs::create_dir(&sub).unwrap();
        fs::write(&file, services(&[80; 2])).unwrap();
        let mut scanner = scanner(folder.path());
        let start = Instant::now();
        scanner.rescan(start, SystemTime::now(), Trigger::Start);
        let confirm = scanner.timing.confirm;
        for (is_removal_seen, is_closed) in [(true, true), (false, true), (false, false), (true, false)] {
            let mut paths = vec![(file.clone(), WriteState::Removed), (sub.clone(), WriteState::Complete)];
            fs::remove_dir_all(&sub).unwrap();
            if is_removal_seen {
                scanner.timing.settle = confirm / 2;
                let gone = Changes { paths: paths.drain(..1).collect(), ..Changes::default() };
                assert!(scanner.poll_changes(gone, start, SystemTime::now()).events.is_empty());
                scanner.timing.settle = Duration::ZERO;
            }
            fs::create_dir(&sub).unwrap();
            fs::write(&file, "").unwrap();
            let replaced = Changes { paths: paths.into_iter().collect(), ..Changes::default() };
            assert!(
                scanner.poll_changes(replaced, start + confirm / 10, SystemTime::now()).events.is_empty()
            );
            let early = scanner.poll_changes(Changes::default(), start + confirm / 2, SystemTime::now());
            assert!(early.events.is_empty(), "it may be open since before it was watched");
            assert_eq!(scanner.state().objects().len(), 2);
            if is_closed {
                assert_eq!(closed(&mut scanner, &file, &services(&[8_080; 2]), start + confirm), 2);
            } else {
                let quiet = SystemTime::now() + confirm;
                assert_eq!(
                    scanner.poll_changes(Changes::default(), start + 2 * confirm, quiet).events.len(),
                    2
                );
            }
            assert!(!scanner.is_holding());
            closed(&mut scanner, &file, &services(&[80; 2]), start + confirm);
            assert_eq!(scanner.next_due(), None);
        }
    }

    #[test]
    fn swapped_link_takes_objects_away_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let fill = |version: &str, ports: &[u16]| {
            fs::create_dir(path.join(version)).unwrap();
            fs::write(path.join(version).join("a.yaml"), services(ports)).unwrap();
            std::os::unix::fs::symlink(version, path.join("..tmp")).unwrap();
            fs::rename(path.join("..tmp"), path.join("..data")).unwrap();
        };
        fill("..v1", &[80; 5]);
        std::os::unix::fs::symlink("..data/a.yaml", path.join("a.yaml")).unwrap();
        let mut scanner = scanner(path);
        let now = Instant::now();
        assert_eq!(scanner.rescan(now, SystemTime::now(), Trigger::Start).events.len(), 5);
        fill("..v2", &[80; 3]);
        assert_eq!(changed(&mut scanner, &path.join("..data"), WriteState::Complete, now, Duration::ZERO), 2);
    }
}
