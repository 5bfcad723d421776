//! The behaviour of a container's process, encoded in its command so that a manifest defines it.
//!
//! `["/bin/act", "fails=2", "then=exit:0", "after=1500", "term=200:143"]`: exits with 1 in its
//! first two attempts, later with 0; each run lasts 1.5 s; on SIGTERM it ends after 0.2 s with 143.

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// It exits with 1 in this many first attempts.
    pub fails: u32,
    /// What it does in later attempts.
    pub then: Then,
    /// How long a run that ends by itself lasts, milliseconds.
    pub after_ms: u64,
    /// The reaction to SIGTERM.
    pub term: Term,
    /// How it answers probes and hooks.
    pub behaviour: Behaviour,
}

/// How a container answers its probes and hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// The port on which it answers; no other container has it.
    pub port: u16,
    /// It is healthy this many milliseconds after its start.
    pub well_ms: u64,
    /// And unhealthy after this many; 0: never.
    pub sick_ms: u64,
    /// What postStart does.
    pub post: HookOutcome,
    /// What preStop does.
    pub pre: HookOutcome,
}

/// What a hook does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookOutcome {
    /// It succeeds.
    #[default]
    Well,
    /// It fails.
    Fails,
    /// It succeeds after this many milliseconds.
    Slow(u64),
}

impl Behaviour {
    /// Whether probes succeed this many milliseconds after the start.
    pub fn is_well(self, age_ms: u64) -> bool {
        age_ms >= self.well_ms && (self.sick_ms == 0 || age_ms < self.sick_ms)
    }

    fn word(self) -> String {
        let conduct = |conduct| match conduct {
            HookOutcome::Well => 0,
            HookOutcome::Fails => 1,
            HookOutcome::Slow(ms) => ms + 2,
        };
        let (post, pre) = (conduct(self.post), conduct(self.pre));
        format!("manners={}:{}:{}:{post}:{pre}", self.port, self.well_ms, self.sick_ms)
    }

    fn of(word: &str) -> Self {
        let numbers =
            word.split(':').map(|part| part.parse::<u64>().expect("word() wrote a number"));
        let numbers: Vec<u64> = numbers.collect();
        let [port, well_ms, sick_ms, post, pre] = numbers[..] else { panic!("got {word:?}") };
        let conduct = |number| match number {
            0 => HookOutcome::Well,
            1 => HookOutcome::Fails,
            ms => HookOutcome::Slow(ms - 2),
        };
        let (post, pre) = (conduct(post), conduct(pre));
        Self { port: port as u16, well_ms, sick_ms, post, pre }
    }
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It does not end.
    Run,
    /// It exits with this code.
    Exit(i32),
    /// It does not start: there is no such program.
    Missing,
}

/// The answer to SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// Goes on until SIGKILL.
    Ignore,
    /// Ends this many milliseconds later with this code.
    End(u64, i32),
}

impl Program {
    /// As a manifest's `command`.
    pub fn command(self) -> Vec<String> {
        let then = match self.then {
            Then::Run => "then=run".to_owned(),
            Then::Exit(code) => format!("then=exit:{code}"),
            Then::Missing => "then=missing".to_owned(),
        };
        let term = match self.term {
            Term::Ignore => "term=ignore".to_owned(),
            Term::End(ms, code) => format!("term={ms}:{code}"),
        };
        vec![
            "/bin/act".to_owned(),
            format!("fails={}", self.fails),
            then,
            format!("after={}", self.after_ms),
            term,
            self.behaviour.word(),
        ]
    }

    /// Decodes a container's command.
    pub fn of(command: &[String]) -> Self {
        let value = |key: &str| {
            let found = command.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            found.unwrap_or_else(|| panic!("got command {command:?}, expected {key}= in it"))
        };
        let then = match value("then").split_once(':') {
            Some((_, code)) => Then::Exit(code.parse().expect("Program::command wrote a number")),
            None if value("then") == "run" => Then::Run,
            None => Then::Missing,
        };
        let term = match value("term").split_once(':') {
            Some((ms, code)) => Term::End(
                ms.parse().expect("Program::command wrote a number"),
                code.parse().expect("Program::command wrote a number"),
            ),
            None => Term::Ignore,
        };
        Self {
            fails: value("fails").parse().expect("Program::command wrote a number"),
            then,
            after_ms: value("after").parse().expect("Program::command wrote a number"),
            term,
            behaviour: Behaviour::of(value("manners")),
        }
    }

    /// The outcome of this attempt.
    pub fn run(self, attempt: u32) -> Then {
        match self.then {
            Then::Missing => Then::Missing,
            _ if attempt < self.fails => Then::Exit(1),
            then => then,
        }
    }
}
