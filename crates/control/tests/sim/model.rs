//! What may be true, told by nothing but what was asked and answered.
//!
//! A *cell* holds one content at a time: a file on `main`, or whether a policy is in force. Each write to it took effect at
//! one moment between its request and its answer, or, where there was no answer, at one moment until the process died, or
//! never. A read is right if some order of such moments explains it.

use std::collections::{BTreeMap, BTreeSet};

/// What a cell holds; `None` for nothing.
pub type Content = Option<String>;

#[derive(Debug, Clone)]
struct Write {
    content: Content,
    begun: u64,
    /// When it was over at the latest.
    over: Option<u64>,
    /// Whether it has taken effect for certain.
    done: bool,
}

/// Names a write that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    cell: String,
    begun: u64,
}

/// A request whose rows have to be on the audit.
#[derive(Debug, Clone)]
pub struct Decided {
    pub request: String,
    pub what: String,
    pub allowed: bool,
}

#[derive(Debug, Default)]
pub struct Model {
    clock: u64,
    cells: BTreeMap<String, Vec<Write>>,
    /// Runs by what their requests were named.
    pub runs: BTreeMap<String, BTreeSet<String>>,
    pub decided: Vec<Decided>,
    /// Versions that were answered, and what they have at a path.
    pub versions: Vec<(String, String, String)>,
    /// What was found wrong.
    pub faults: Vec<String>,
}

impl Model {
    /// The next moment.
    pub fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A write is about to be asked for.
    pub fn ask(&mut self, cell: &str, content: Content) -> Asked {
        let begun = self.now();
        self.writes(cell).push(Write { content, begun, over: None, done: false });
        Asked { cell: cell.to_owned(), begun }
    }

    /// The same once more, which was refused.
    pub fn ask_at(&mut self, cell: &str, content: Content, asked: &Asked) -> Asked {
        self.writes(cell).push(Write { content, begun: asked.begun, over: None, done: false });
        asked.clone()
    }

    /// It was acknowledged.
    pub fn done(&mut self, asked: &Asked) {
        let now = self.now();
        if let Some(write) = self.find(asked) {
            (write.over, write.done) = (Some(write.over.unwrap_or(now)), true);
        }
    }

    /// It was refused, and has no effect.
    pub fn refused(&mut self, asked: &Asked) {
        self.writes(&asked.cell).retain(|write| write.begun != asked.begun);
    }

    /// The process is gone: what was not answered has taken effect by now, or never will.
    pub fn life_over(&mut self) {
        let now = self.now();
        for write in self.cells.values_mut().flatten() {
            write.over.get_or_insert(now);
        }
    }

    /// A cell was read from `begun` on, and held `content`.
    pub fn read(&mut self, cell: &str, begun: u64, content: &Content, who: &str) {
        let now = self.now();
        let writes = self.writes(cell).clone();
        let later = |write: &Write| {
            let after = |other: &&Write| other.done && write.over.is_some_and(|over| other.begun > over);
            writes.iter().find(|other| after(other) && other.over.is_some_and(|over| over < begun)).cloned()
        };
        let mut explained = writes.iter().filter(|write| write.content == *content);
        if !explained.clone().any(|write| later(write).is_none()) {
            let why = match explained.next().and_then(later) {
                Some(other) => format!("that was over before {:?} was written", other.content),
                None => "which nobody has written".to_owned(),
            };
            self.faults.push(format!("{who} finds {content:?} in {cell}, {why}: {writes:?}"));
        }
        // What was seen stays.
        let unique = content.is_some() && !cell.starts_with('#');
        if let Some(write) = self.writes(cell).iter_mut().find(|write| unique && write.content == *content) {
            write.over = Some(write.over.map_or(now, |over| over.min(now)));
            write.done = true;
        }
    }

    pub fn fault(&mut self, what: impl Into<String>) {
        self.faults.push(what.into());
    }

    fn find(&mut self, asked: &Asked) -> Option<&mut Write> {
        self.writes(&asked.cell).iter_mut().find(|write| write.begun == asked.begun)
    }

    fn writes(&mut self, cell: &str) -> &mut Vec<Write> {
        let empty = || vec![Write { content: None, begun: 0, over: Some(0), done: true }];
        self.cells.entry(cell.to_owned()).or_insert_with(empty)
    }
}

#[test]
fn a_lost_write_and_an_old_read_are_faults() {
    let mut model = Model::default();
    let first = model.ask("/x", Some("1".to_owned()));
    model.done(&first);
    let second = model.ask("/x", Some("2".to_owned()));
    let begun = model.now();
    for content in [Some("1".to_owned()), Some("2".to_owned())] {
        model.read("/x", begun, &content, "a reader");
    }
    assert!(model.faults.is_empty(), "{:?}", model.faults);
    // Seen, so it is there.
    model.life_over();
    let begun = model.now();
    model.read("/x", begun, &Some("1".to_owned()), "a reader");
    assert_eq!(model.faults.len(), 1);
    model.read("/x", begun, &None, "a reader");
    assert_eq!(model.faults.len(), 2);
    model.refused(&second);
    model.read("/x", begun, &Some("2".to_owned()), "a reader");
    assert_eq!(model.faults.len(), 3, "{:?}", model.faults);
}
