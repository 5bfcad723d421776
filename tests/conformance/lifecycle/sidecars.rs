//! Pods with sidecars that run on, end, or cannot be created, for each policy.
//!
//! The tests of one context share one pod, as upstream's do: the first one runs it.

use std::time::Duration;

use super::{
    AREA, BAD_IMAGE, Log, OTHER_IMAGE, POLICIES, Plan, holds, init, main, sidecar, wait_ended,
};
use crate::Row;
use crate::case::Case;

const SIDECAR: &str = "restartable-init-1";
const INIT: &str = "init-1";
const MAIN: &str = "regular-1";

/// The check of the log of a context's pod.
type Check = fn(&Log);

/// A test by its name, and its check.
type Test = (&'static str, Check);

/// Runs a pod of this policy; returns its log.
type Run = fn(&Case<'_>, &'static str) -> Log;

/// A context: a pod, and the tests that check it.
struct Context {
    name: String,
    run: Run,
    policy: &'static str,
    tests: Vec<Test>,
}

pub(super) fn rows() -> Vec<Row> {
    let mut contexts: Vec<Context> = POLICIES.into_iter().flat_map(of_policy).collect();
    contexts.push(order());
    let longest = contexts.iter().map(|context| context.tests.len()).max().unwrap_or(0);
    let mut rows = Vec::new();
    // The first tests of all contexts run first: the others of a context wait for its pod.
    for index in 0..longest {
        for context in &contexts {
            let Some(&(name, check)) = context.tests.get(index) else { continue };
            let (key, run, policy) = (context.name.clone(), context.run, context.policy);
            rows.push(Row::new(AREA, format!("{key}: {name}"), move |case| {
                check(&case.node.once(&key, || run(case, policy)));
            }));
        }
    }
    for policy in POLICIES {
        let name = format!(
            "using a restartable init container in a Pod with restartPolicy={policy}: a \
             restartable init container runs continuously: should restart when updated with a \
             new image"
        );
        rows.push(Row::new(AREA, name, move |case| updated(case, policy)));
    }
    rows
}

fn of_policy(policy: &'static str) -> Vec<Context> {
    let always = policy == "Always";
    let never = policy == "Never";
    let begin = format!("using a restartable init container in a Pod with restartPolicy={policy}");
    let context =
        |name: &str, run, tests| Context { name: format!("{begin}: {name}"), run, policy, tests };
    let done: (&str, Check) = if always {
        ("should keep running a Pod continuously and produce log", |_| ())
    } else {
        ("should complete a Pod successfully and produce log", |_| ())
    };
    let main_ran: (&str, Check) = if always {
        ("should start a regular container", |log| holds!(log, log.starts(MAIN)))
    } else {
        ("should run a regular container to completion", |log| holds!(log, log.exits(MAIN)))
    };
    let mut contexts = vec![
        context(
            "a restartable init container runs continuously",
            runs_on,
            vec![
                done,
                ("should not restart a restartable init container", |log| {
                    holds!(log, log.starts(SIDECAR), !log.restarted(SIDECAR));
                }),
                if always {
                    ("should start a regular container", |log: &Log| {
                        holds!(log, log.restarted(MAIN));
                    })
                } else {
                    main_ran
                },
            ],
        ),
        context(
            "a restartable init container fails to start because of a bad image",
            bad_image,
            vec![
                if always {
                    ("should continuously run Pod keeping it Pending and produce log", |_| ())
                } else {
                    ("should mark a Pod as failed and produce log", |_| ())
                },
                ("should not start a restartable init container", |log| {
                    holds!(log, !log.starts(SIDECAR));
                }),
                ("should not start a regular container", |log| holds!(log, !log.starts(MAIN))),
            ],
        ),
    ];
    contexts.extend(ending_sidecar(context, done, main_ran));
    contexts.extend(failing_init(never, context));
    contexts
}

/// The contexts in which the sidecar ends again and again.
fn ending_sidecar(
    context: impl Fn(&str, Run, Vec<Test>) -> Context,
    done: Test,
    main_ran: Test,
) -> [Context; 2] {
    let runs: [(&str, Run); 2] = [
        ("a restartable init container starts and exits with exit code 0 continuously", |c, p| {
            ends(c, p, 0)
        }),
        ("a restartable init container starts and exits with exit code 1 continuously", |c, p| {
            ends(c, p, 1)
        }),
    ];
    let before: (&'static str, Check) = (
        "should restart a restartable init container before the regular container started",
        |log| holds!(log, log.starts_before(SIDECAR, MAIN)),
    );
    let after: (&'static str, Check) = (
        "should restart a restartable init container after the regular container started",
        |log| holds!(log, log.starts_before(MAIN, SIDECAR)),
    );
    runs.map(|(name, run)| context(name, run, vec![done, before, after, main_ran]))
}

/// The contexts in which an init container fails before or beside the sidecar.
fn failing_init(never: bool, context: impl Fn(&str, Run, Vec<Test>) -> Context) -> [Context; 2] {
    let outcome: [(&str, Check); 2] = if never {
        [
            ("should mark a Pod as failed and produce log", |_| ()),
            ("should mark an Init container as failed", |log| holds!(log, log.exits(INIT))),
        ]
    } else {
        [
            ("should continuously run Pod keeping it Pending", |_| ()),
            ("should have Init container restartCount greater than 0", |log| {
                holds!(log, log.restarted(INIT));
            }),
        ]
    };
    let before = if never {
        "an Init container before restartable init container fails"
    } else {
        "an Init container before restartable init container continuously fails"
    };
    let unstarted: (&str, Check) = ("should not start restartable init container", |log| {
        holds!(log, !log.starts(SIDECAR));
    });
    let parallel: (&str, Check) = (
        "should be running restartable init container and a failed Init container in parallel",
        |log| holds!(log, log.together(SIDECAR, INIT)),
    );
    let [first, second] = outcome;
    [
        context(before, fails_before, vec![first, second, unstarted]),
        context(
            "an Init container after restartable init container fails",
            fails_after,
            vec![first, second, parallel],
        ),
    ]
}

/// Waits for the pod's result: restarts of the main container, or its success.
fn wait_outcome(case: &Case<'_>, policy: &str, restarts: u64) -> Log {
    if policy == "Always" {
        let bound = Duration::from_secs(120);
        case.wait_in(bound, "the main container restarts", |pod| pod.restarts(MAIN) >= restarts);
    } else {
        let pod = wait_ended(case);
        assert_eq!(pod.phase(), "Succeeded", "{}", pod.0["status"]);
    }
    Log::of(case)
}

fn runs_on(case: &Case<'_>, policy: &'static str) -> Log {
    Plan::new(policy, vec![sidecar(SIDECAR), main(MAIN)]).put(case);
    wait_outcome(case, policy, 2)
}

fn bad_image(case: &Case<'_>, policy: &'static str) -> Log {
    Plan::new(policy, vec![sidecar(SIDECAR).image(BAD_IMAGE), main(MAIN)]).put(case);
    let pod =
        case.wait("its image cannot be had", |pod| pod.waits_for(SIDECAR) == "ImagePullBackOff");
    assert_eq!(pod.phase(), "Pending");
    Log::of(case)
}

fn ends(case: &Case<'_>, policy: &'static str, exit: u8) -> Log {
    // It ends a second time before the main container starts, and starts again ten seconds later.
    let main = main(MAIN).runs(20);
    Plan::new(policy, vec![sidecar(SIDECAR).runs(2).exits(exit), init(INIT).runs(5), main])
        .put(case);
    wait_outcome(case, policy, 1)
}

fn wait_failing(case: &Case<'_>, policy: &str) -> Log {
    if policy == "Never" {
        let pod = wait_ended(case);
        assert_eq!((pod.phase(), pod.reason()), ("Failed", ""));
    } else {
        let bound = Duration::from_secs(120);
        case.wait_in(bound, "it restarts three times", |pod| {
            assert_eq!(pod.phase(), "Pending");
            pod.restarts(INIT) >= 3
        });
    }
    Log::of(case)
}

fn fails_before(case: &Case<'_>, policy: &'static str) -> Log {
    Plan::new(policy, vec![init(INIT).exits(1), sidecar(SIDECAR), main(MAIN)]).put(case);
    wait_failing(case, policy)
}

fn fails_after(case: &Case<'_>, policy: &'static str) -> Log {
    let sidecar = sidecar(SIDECAR).runs(20).exits(1).gated();
    Plan::new(policy, vec![sidecar, init(INIT).exits(1), main(MAIN)]).put(case);
    wait_failing(case, policy)
}

/// Only a sidecar with a changed image restarts.
fn updated(case: &Case<'_>, policy: &'static str) {
    const SECOND: &str = "restartable-init-2";
    let run_s = if policy == "Always" { 5 } else { 15 };
    let plan = Plan::new(policy, vec![sidecar(SIDECAR), sidecar(SECOND), main(MAIN).runs(run_s)]);
    plan.put(case);
    case.wait("it runs", |pod| pod.phase() == "Running");
    plan.updated(SIDECAR, OTHER_IMAGE).put(case);
    if policy == "Always" {
        let bound = Duration::from_secs(120);
        case.wait_in(bound, "the main container restarts", |pod| pod.restarts(MAIN) >= 2);
    }
    case.wait("the sidecar has the other image", |pod| {
        let status = pod.container(SIDECAR);
        status["state"]["running"].is_object() && status["image"] == OTHER_IMAGE
    });
    if policy == "OnFailure" {
        assert_eq!(wait_ended(case).phase(), "Succeeded");
    }
    let log = Log::of(case);
    holds!(log, log.restarted(SIDECAR), !log.restarted(SECOND));
    assert!(policy == "Always" || !log.restarted(MAIN), "{log:#?}");
}

/// Three init containers with a sidecar after the first and one after the second.
fn order() -> Context {
    const I1: &str = "init-1";
    const I2: &str = "init-2";
    const I3: &str = "init-3";
    const S1: &str = "restartable-init-1";
    const S2: &str = "restartable-init-2";
    let tests: Vec<Test> = vec![
        ("should finish and produce log", |_| ()),
        (
            "should run the first init container to completion before starting first restartable \
             init container",
            |log| holds!(log, log.starts_before(I1, S1), log.exits_before(I1, S1)),
        ),
        ("should run first init container and first restartable init container together", |log| {
            holds!(log, log.together_first(S1, I2));
        }),
        (
            "should run second init container to completion before starting second restartable \
             init container",
            |log| holds!(log, log.starts_before(I2, S2), log.exits_before(I2, S2)),
        ),
        ("should start second restartable init container before third init container", |log| {
            holds!(log, log.starts_before(S2, I3));
        }),
        ("should run both restartable init containers and third init container together", |log| {
            holds!(log, log.together(S1, S2), log.together(S1, I3), log.together(S2, I3));
        }),
        (
            "should run third init container to completion before starting regular container",
            |log| {
                holds!(log, log.starts_before(I3, MAIN), log.exits_before(I3, MAIN));
            },
        ),
        ("should run both restartable init containers and a regular container together", |log| {
            holds!(log, log.together(S1, MAIN), log.together(S2, MAIN));
        }),
    ];
    Context {
        name:
            "using a Pod with restartPolicy=Never, three init container and two restartable init \
               containers"
                .to_owned(),
        run: |case, policy| {
            let containers = vec![
                init(I1),
                sidecar(S1).gated(),
                init(I2),
                sidecar(S2).gated(),
                init(I3),
                main(MAIN),
            ];
            Plan::new(policy, containers).put(case);
            let pod = wait_ended(case);
            assert_eq!(pod.phase(), "Succeeded");
            Log::of(case)
        },
        policy: "Never",
        tests,
    }
}
