//! Conditions in the Common Expression Language. An expression is parsed once for each request, and its evaluation
//! always ends.
//!
//! Before parsing, the length of the text, the number of its operators and brackets, and their nesting are checked
//! against bounds. These bounds limit the recursion of the parser. After parsing, the depth is checked, and nested
//! loops are refused. Lists in the input are bounded. So the evaluation for one object takes time in proportion to the
//! length of the expression times the length of one list.

use super::status;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, operators};
use cel::common::types::CelBool;
use cel::objects::{Key, Map, Value};
use cel::parser::PrattParser;
use cel::{Context, Env};
pub(super) use checker::{Element, Fields, Type};
use engine::object::clip;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use tonic::Status;

mod checker;
#[cfg(test)]
mod tests;

/// Maximum length of an expression.
const BYTES_MAX: usize = 1024;
/// Maximum number of characters other than letters, digits and blanks. They bound the recursion of the parser.
const SIGNS_MAX: usize = 200;
/// Maximum nesting of brackets.
const NESTING_MAX: u16 = 12;
/// Maximum nesting after parsing. Each operator counts one, a loop several. Evaluation recurses to the same depth.
const DEPTH_MAX: usize = 24;
/// Maximum number of entries of a list in the input of an expression.
pub(super) const LIST_MAX: usize = 100;
/// Maximum length of text from outside in an error.
const TEXT_MAX_BYTES: usize = 256;

/// Functions that an expression may call besides operators. None takes a pattern.
const FUNCTIONS: [&str; 9] = ["size", "contains", "startsWith", "endsWith", "int", "uint", "double", "string", "type"];
const OPERATORS: [&str; 18] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::IN,
];

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// The one variable of an expression, and its fields.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) fields: Fields,
}

/// Input for expressions about the same object.
pub(super) struct Activation(Context<'static, 'static>);

impl std::fmt::Debug for Activation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Activation")
    }
}

impl Activation {
    /// Input with these variables. Each is the subject of some expressions.
    pub(super) fn of(variables: impl IntoIterator<Item = (&'static Subject, Value)>) -> Activation {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        for (subject, value) in variables {
            context.add_variable_from_value(subject.name, value);
        }
        Activation(context)
    }
}

/// A checked expression.
#[derive(Clone)]
pub(super) struct Expression {
    subject: &'static Subject,
    expr: Arc<IdedExpr>,
}

/// The result of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    True,
    False,
    /// The evaluation failed: for example a missing field or a division by zero.
    Failed,
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Expression").field("subject", &self.subject.name).finish_non_exhaustive()
    }
}

/// An error in an expression, and its position: line and column, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mistake {
    what: String,
    at: Option<(usize, usize)>,
}

impl Mistake {
    fn nowhere(what: impl Into<String>) -> Mistake {
        Mistake { what: what.into(), at: None }
    }
}

impl Expression {
    /// Parses and checks an expression. `None` for an empty text. `field` names the request field in errors.
    pub(super) fn of(field: &str, text: &str, subject: &'static Subject) -> Result<Option<Expression>, Status> {
        if text.is_empty() {
            return Ok(None);
        }
        let read = read(text).and_then(|expr| {
            check(&expr, text, subject)?;
            checker::check(&expr, text, subject)?;
            Ok(expr)
        });
        match read {
            Ok(expr) => Ok(Some(Expression { subject, expr: Arc::new(expr) })),
            Err(Mistake { what, at }) => Err(status::expression_invalid(field, &clip(&what, TEXT_MAX_BYTES), at)),
        }
    }

    /// Evaluates the expression.
    pub(super) fn evaluate(&self, activation: &Activation) -> Verdict {
        let evaluate = || {
            let found = Value::resolve_val(&self.expr, &activation.0).ok()?;
            found.downcast_ref::<CelBool>().map(|found| *found.inner())
        };
        // A panic of the interpreter counts as a failed evaluation, because the expression comes from the network.
        match catch_unwind(AssertUnwindSafe(evaluate)).unwrap_or_default() {
            Some(true) => Verdict::True,
            Some(false) => Verdict::False,
            None => Verdict::Failed,
        }
    }
}

/// A map with text keys, as expressions see it.
pub(super) fn map<const N: usize>(fields: [(&'static str, Value); N]) -> Value {
    let fields = fields.into_iter().map(|(name, value)| (Key::from(name), value));
    Value::Map(Map { map: Arc::new(fields.collect::<HashMap<Key, Value>>()) })
}

/// A list, cut to [`LIST_MAX`] entries.
pub(super) fn list(entries: impl Iterator<Item = Value>) -> Value {
    Value::List(Arc::new(entries.take(LIST_MAX).collect()))
}

fn read(text: &str) -> Result<IdedExpr, Mistake> {
    if text.len() > BYTES_MAX {
        return Err(Mistake::nowhere(format!("it has {} bytes; at most {BYTES_MAX}", text.len())));
    }
    let signs = text.chars().filter(|sign| !sign.is_alphanumeric() && !sign.is_whitespace()).count();
    if signs > SIGNS_MAX {
        return Err(Mistake::nowhere(format!(
            "it has {signs} operators, brackets and other signs; at most {SIGNS_MAX}"
        )));
    }
    // A panic of the parser counts as a syntax error, because the text comes from the network.
    let parsed = catch_unwind(|| PrattParser::new().max_recursion_depth(NESTING_MAX).parse(text));
    let Ok(parsed) = parsed else { return Err(Mistake::nowhere("it cannot be parsed")) };
    parsed.map_err(|errors| match errors.errors.into_iter().next() {
        Some(error) => {
            let place = |number: isize| usize::try_from(number).ok().filter(|&number| number > 0);
            let at = place(error.pos.0).zip(place(error.pos.1));
            Mistake { what: error.msg, at }
        }
        None => Mistake::nowhere("it cannot be parsed"),
    })
}

/// Admits only known variables, functions and fields, and no expensive operation.
fn check(expr: &IdedExpr, text: &str, subject: &Subject) -> Result<(), Mistake> {
    // Each expression with its depth, and the loop variables in scope.
    let mut open: Vec<(&IdedExpr, usize, Vec<&str>)> = vec![(expr, 1, Vec::new())];
    while let Some((next, depth, known)) = open.pop() {
        if depth > DEPTH_MAX {
            return Err(Mistake::nowhere(format!("its parts are nested deeper than {DEPTH_MAX}")));
        }
        let depth = depth + 1;
        let mistake = |what: String, word: &str| Mistake { what, at: place(text, word) };
        match &next.expr {
            Expr::Unspecified => return Err(Mistake::nowhere("it cannot be parsed")),
            Expr::Literal(_) => {}
            Expr::Ident(name) if name == subject.name || known.contains(&name.as_str()) => {}
            Expr::Ident(name) => {
                return Err(mistake(format!("there is no variable {name:?}, only {:?}", subject.name), name));
            }
            Expr::Struct(made) => {
                return Err(mistake("an expression cannot create messages".to_owned(), &made.type_name));
            }
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                if !FUNCTIONS.contains(&name) && !OPERATORS.contains(&name) && name != operators::NOT_STRICTLY_FALSE {
                    return Err(mistake(format!("there is no function {name:?}, only {}", FUNCTIONS.join(", ")), name));
                }
                open.extend(call.target.iter().map(|target| (&**target, depth, known.clone())));
                open.extend(call.args.iter().map(|argument| (argument, depth, known.clone())));
            }
            Expr::Select(select) => {
                open.push((&select.operand, depth, known));
            }
            Expr::List(list) => open.extend(list.elements.iter().map(|element| (element, depth, known.clone()))),
            Expr::Map(map) => {
                for entry in &map.entries {
                    match &entry.expr {
                        EntryExpr::MapEntry(entry) => {
                            open.extend([(&entry.key, depth, known.clone()), (&entry.value, depth, known.clone())]);
                        }
                        EntryExpr::StructField(field) => open.push((&field.value, depth, known.clone())),
                    }
                }
            }
            Expr::Comprehension(over) => {
                if !known.is_empty() {
                    return Err(mistake("nested loops are not allowed".to_owned(), &over.iter_var));
                }
                let names = [Some(&over.iter_var), over.iter_var2.as_ref(), Some(&over.accu_var)];
                let inside: Vec<&str> = names.into_iter().flatten().map(String::as_str).collect();
                open.push((&over.iter_range, depth, known));
                for part in [&over.accu_init, &over.loop_cond, &over.loop_step, &over.result] {
                    open.push((part, depth, inside.clone()));
                }
            }
        }
    }
    Ok(())
}

/// Line and column, from 1, of the first occurrence of a word.
fn place(text: &str, word: &str) -> Option<(usize, usize)> {
    let of_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    let whole = |&(at, _): &(usize, &str)| {
        !text[..at].ends_with(of_word) && !text[at + word.len()..].starts_with(of_word) && !word.is_empty()
    };
    let (at, _) = text.match_indices(word).find(whole)?;
    let before = &text[..at];
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    Some((before.matches('\n').count() + 1, column))
}
