//! Type-checks an expression before its evaluation.
//!
//! The checker knows the fields of the subject, and the operand types of the admitted functions, operators and macros.
//! An unknown type (`dyn`) is that of a mixed list, or of a map that the expression creates. It is accepted everywhere
//! except as the result of the whole expression.

use super::{Mistake, place};
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Null,
    /// The type of `type(...)`.
    Kind,
    List(Element),
    /// An object with these fields. It may be null.
    Object(Fields),
    /// A map that the expression creates.
    Map,
    /// Unknown.
    Dyn,
    /// The element type of an empty list.
    Never,
}

/// The fields of an object, each with its type.
pub(crate) type Fields = &'static [(&'static str, Type)];

/// The type of the elements of a list.
#[derive(Clone, Debug)]
pub(crate) enum Element {
    Of(&'static Type),
    Found(Arc<Type>),
}

impl Deref for Element {
    type Target = Type;

    fn deref(&self) -> &Type {
        match self {
            Element::Of(known) => known,
            Element::Found(found) => found,
        }
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Element) -> bool {
        **self == **other
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Null => f.write_str("null"),
            Type::Kind => f.write_str("type"),
            Type::List(element) => write!(f, "list({})", **element),
            Type::Object(_) => f.write_str("object"),
            Type::Map => f.write_str("map"),
            Type::Dyn | Type::Never => f.write_str("dyn"),
        }
    }
}

impl Type {
    fn list(element: Type) -> Type {
        Type::List(Element::Found(Arc::new(element)))
    }

    fn is_unknown(&self) -> bool {
        matches!(self, Type::Dyn | Type::Never)
    }

    fn is_number(&self) -> bool {
        matches!(self, Type::Int | Type::Uint | Type::Double)
    }

    /// The common type of two branches.
    fn or(self, other: Type) -> Type {
        match (self, other) {
            (Type::Never, one) | (one, Type::Never) => one,
            (Type::List(one), Type::List(other)) => Type::list((*one).clone().or((*other).clone())),
            (object @ Type::Object(_), Type::Null) | (Type::Null, object @ Type::Object(_)) => object,
            (one, other) if one == other => one,
            (_, _) => Type::Dyn,
        }
    }

    /// Whether two values can be equal. Numbers of different types compare by value.
    fn compares(&self, other: &Type) -> bool {
        match (self, other) {
            (one, other) if one.is_unknown() || other.is_unknown() => true,
            (one, other) if one.is_number() && other.is_number() => true,
            (Type::List(one), Type::List(other)) => one.compares(other),
            (Type::Object(_) | Type::Map, Type::Object(_) | Type::Map | Type::Null) => true,
            (Type::Null, Type::Object(_) | Type::Map) => true,
            (one, other) => one == other,
        }
    }

    /// Whether two values have an order.
    fn is_ordered_with(&self, other: &Type) -> bool {
        let is_ordered =
            |of: &Type| of.is_unknown() || of.is_number() || matches!(of, Type::Bool | Type::String | Type::Bytes);
        is_ordered(self) && is_ordered(other) && self.compares(other)
    }
}

/// Variables and their types, the innermost last.
type Scope = Vec<(String, Type)>;

/// Returns an error unless the expression has one of these types.
pub(super) fn check(
    expr: &IdedExpr,
    text: &str,
    variables: &[(&'static str, Type)],
    types: &[Type],
) -> Result<(), Mistake> {
    let mut checker = Checker::new(text, variables);
    let found = checker.of(expr)?;
    if types.contains(&found) {
        return Ok(());
    }
    let what = match types {
        [Type::Bool] => format!("the expression is not a condition: its type is {found}, not bool"),
        _ => {
            let types: Vec<String> = types.iter().map(ToString::to_string).collect();
            format!("the type of the expression is {found}, not {}", types.join(" or "))
        }
    };
    Err(checker.mistake(what, word(expr)))
}

struct Checker<'a> {
    text: &'a str,
    scope: Scope,
}

impl<'a> Checker<'a> {
    fn new(text: &'a str, variables: &[(&'static str, Type)]) -> Checker<'a> {
        Checker { text, scope: variables.iter().map(|(name, of)| ((*name).to_owned(), of.clone())).collect() }
    }

    /// An error at the first occurrence of a word, or else at the beginning.
    fn mistake(&self, what: String, word: Option<&str>) -> Mistake {
        Mistake { what, at: word.and_then(|word| place(self.text, word)).or(Some((1, 1))) }
    }

    fn of(&mut self, expr: &IdedExpr) -> Result<Type, Mistake> {
        match &expr.expr {
            Expr::Literal(literal) => Ok(of_literal(literal)),
            Expr::Ident(name) => {
                let known = self.scope.iter().rev().find(|(known, _)| known == name);
                // An earlier check has refused unknown variables.
                Ok(known.map_or(Type::Dyn, |(_, of)| of.clone()))
            }
            Expr::Select(select) => self.of_select(select),
            Expr::Call(call) => self.of_call(call),
            Expr::List(list) => {
                let elements = list.elements.iter().map(|element| self.of(element));
                Ok(Type::list(elements.collect::<Result<Vec<_>, _>>()?.into_iter().fold(Type::Never, Type::or)))
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    match &entry.expr {
                        EntryExpr::MapEntry(entry) => {
                            self.of(&entry.key)?;
                            self.of(&entry.value)?;
                        }
                        EntryExpr::StructField(field) => drop(self.of(&field.value)?),
                    }
                }
                Ok(Type::Map)
            }
            Expr::Comprehension(over) => self.of_loop(over),
            Expr::Struct(_) | Expr::Unspecified => Ok(Type::Dyn),
        }
    }

    fn of_select(&mut self, select: &SelectExpr) -> Result<Type, Mistake> {
        let found = match self.of(&select.operand)? {
            Type::Object(fields) => self.field(fields, &select.field)?,
            Type::Map | Type::Dyn | Type::Never => Type::Dyn,
            other @ (Type::Bool
            | Type::Int
            | Type::Uint
            | Type::Double
            | Type::String
            | Type::Bytes
            | Type::Null
            | Type::Kind
            | Type::List(_)) => {
                let what = format!("{other} has no field {:?}", select.field);
                return Err(self.mistake(what, Some(&select.field)));
            }
        };
        Ok(if select.test { Type::Bool } else { found })
    }

    fn field(&self, fields: Fields, name: &str) -> Result<Type, Mistake> {
        let found = fields.iter().find(|(known, _)| *known == name);
        found.map(|(_, of)| of.clone()).ok_or_else(|| {
            let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
            self.mistake(format!("there is no field {name:?}, only {}", names.join(", ")), Some(name))
        })
    }

    fn of_call(&mut self, call: &CallExpr) -> Result<Type, Mistake> {
        let operands: Vec<&IdedExpr> = call.target.iter().map(|target| &**target).chain(&call.args).collect();
        let types = operands.iter().map(|operand| self.of(operand)).collect::<Result<Vec<Type>, Mistake>>()?;
        let found = match (call.func_name.as_str(), types.as_slice()) {
            (operators::INDEX, [Type::Object(fields), Type::String]) => match &call.args.last().map(|key| &key.expr) {
                Some(Expr::Literal(LiteralValue::String(name))) => Some(self.field(fields, name.inner())?),
                _ => Some(Type::Dyn),
            },
            // The loops of macros add to the list of their results. No expression can name it.
            (operators::ADD, [Type::List(_), Type::List(_)]) if !is_result(operands[0]) => None,
            (name, types) => given(name, types),
        };
        found.ok_or_else(|| {
            let names: Vec<String> = types.iter().map(ToString::to_string).collect();
            let called = call.func_name.trim_matches(['_', '@', '!']).trim_end_matches('_');
            let called = if called.is_empty() { call.func_name.as_str() } else { called };
            let at = operands.iter().find_map(|operand| word(operand)).or(Some(called));
            self.mistake(format!("{called} does not accept {}", names.join(" and ")), at)
        })
    }

    /// The type of a macro, which expands to a loop.
    fn of_loop(&mut self, over: &ComprehensionExpr) -> Result<Type, Mistake> {
        let element = match self.of(&over.iter_range)? {
            Type::List(element) => (*element).clone(),
            Type::Object(_) => Type::String,
            Type::Map | Type::Dyn | Type::Never => Type::Dyn,
            other @ (Type::Bool
            | Type::Int
            | Type::Uint
            | Type::Double
            | Type::String
            | Type::Bytes
            | Type::Null
            | Type::Kind) => {
                return Err(self.mistake(format!("{other} has no elements"), word(&over.iter_range)));
            }
        };
        let begin = self.of(&over.accu_init)?;
        let outside = self.scope.len();
        match &over.iter_var2 {
            None => self.scope.push((over.iter_var.clone(), element)),
            Some(second) => self.scope.extend([(over.iter_var.clone(), Type::Dyn), (second.clone(), Type::Dyn)]),
        }
        self.scope.push((over.accu_var.clone(), begin.clone()));
        let gathered = begin.or(self.of(&over.loop_step)?);
        if let Some((_, of)) = self.scope.last_mut() {
            *of = gathered;
        }
        self.of(&over.loop_cond)?;
        self.of(&over.loop_step)?;
        let found = self.of(&over.result);
        self.scope.truncate(outside);
        found
    }
}

fn of_literal(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::String,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

/// The result type of a function or operator for these operand types; `None` if it does not accept them.
fn given(name: &str, types: &[Type]) -> Option<Type> {
    let is = |one: &Type, wanted: &Type| one.is_unknown() || one == wanted;
    match (name, types) {
        (operators::CONDITIONAL, [condition, yes, no]) if is(condition, &Type::Bool) => {
            Some(yes.clone().or(no.clone()))
        }
        (operators::LOGICAL_AND | operators::LOGICAL_OR, [one, other]) => {
            (is(one, &Type::Bool) && is(other, &Type::Bool)).then_some(Type::Bool)
        }
        (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [one]) => is(one, &Type::Bool).then_some(Type::Bool),
        (operators::EQUALS | operators::NOT_EQUALS, [one, other]) => one.compares(other).then_some(Type::Bool),
        (operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS, [one, other]) => {
            one.is_ordered_with(other).then_some(Type::Bool)
        }
        (operators::IN, [_, Type::Map | Type::Dyn | Type::Never]) => Some(Type::Bool),
        (operators::IN, [one, Type::List(element)]) => one.compares(element).then_some(Type::Bool),
        (operators::IN, [one, Type::Object(_)]) => is(one, &Type::String).then_some(Type::Bool),
        (operators::INDEX, [Type::List(element), index]) => {
            (index.is_unknown() || matches!(index, Type::Int | Type::Uint)).then(|| (**element).clone())
        }
        (operators::INDEX, [Type::Object(_) | Type::Map | Type::Dyn | Type::Never, Type::Dyn | Type::Never])
        | (operators::INDEX, [Type::Map | Type::Dyn | Type::Never, _]) => Some(Type::Dyn),
        (operators::NEGATE, [one]) => {
            (one.is_unknown() || matches!(one, Type::Int | Type::Double)).then(|| one.clone())
        }
        (operators::ADD, [Type::List(one), Type::List(other)]) => {
            Some(Type::list((**one).clone().or((**other).clone())))
        }
        (
            operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO,
            [one, other],
        ) => of_arithmetic(name, one, other),
        ("size", [one]) => {
            let has_size = matches!(
                one,
                Type::String | Type::Bytes | Type::List(_) | Type::Map | Type::Object(_) | Type::Dyn | Type::Never
            );
            has_size.then_some(Type::Int)
        }
        ("contains" | "startsWith" | "endsWith", [one, other]) => {
            (is(one, &Type::String) && is(other, &Type::String)).then_some(Type::Bool)
        }
        ("int" | "uint" | "double", [one]) => {
            let found = match name {
                "int" => Type::Int,
                "uint" => Type::Uint,
                _ => Type::Double,
            };
            (one.is_unknown() || one.is_number() || *one == Type::String).then_some(found)
        }
        ("string", [one]) => {
            let has_text =
                one.is_unknown() || one.is_number() || matches!(one, Type::String | Type::Bytes | Type::Bool);
            has_text.then_some(Type::String)
        }
        ("type", [_]) => Some(Type::Kind),
        (_, _) => None,
    }
}

fn of_arithmetic(name: &str, one: &Type, other: &Type) -> Option<Type> {
    let adds = |of: &Type| match of {
        Type::Int | Type::Uint => true,
        Type::Double => name != operators::MODULO,
        Type::String | Type::Bytes | Type::List(_) => name == operators::ADD,
        Type::Bool | Type::Null | Type::Kind | Type::Object(_) | Type::Map => false,
        Type::Dyn | Type::Never => true,
    };
    if !adds(one) || !adds(other) {
        return None;
    }
    match (one.is_unknown(), other.is_unknown()) {
        (true, _) | (_, true) => Some(Type::Dyn),
        (false, false) => (one == other).then(|| one.clone()),
    }
}

/// Whether this is the result of a loop so far.
fn is_result(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Expr::Ident(name) if name.starts_with('@'))
}

/// A word that locates the expression in the text.
fn word(expr: &IdedExpr) -> Option<&str> {
    let mut open = vec![expr];
    while let Some(next) = open.pop() {
        match &next.expr {
            Expr::Select(select) => return Some(&select.field),
            Expr::Ident(name) if !name.starts_with('@') => return Some(name),
            Expr::Call(call) if call.target.is_some() => return Some(&call.func_name),
            Expr::Call(call) if call.func_name.starts_with(char::is_alphabetic) => return Some(&call.func_name),
            Expr::Call(call) => open.extend(call.args.iter().rev()),
            Expr::List(list) => open.extend(list.elements.iter().rev()),
            Expr::Comprehension(over) => open.push(&over.iter_range),
            Expr::Literal(_) | Expr::Ident(_) | Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => {}
        }
    }
    None
}

/// The type of an expression.
#[cfg(test)]
pub(super) fn found(expr: &IdedExpr, text: &str, variables: &[(&'static str, Type)]) -> Result<Type, Mistake> {
    Checker::new(text, variables).of(expr)
}
