-- Evaluates the questions of tests/postgres/postgres.h. The test program loads these functions once.

-- A value as a text that Loam's text can be compared with: floats as their bits, without the sign of a zero. One
-- function for all types, because PostgreSQL would choose an overload for floats for integers and decimals, too.
CREATE FUNCTION float_bits(x float8) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT CASE WHEN x = 'NaN' THEN 'NaN' ELSE encode(float8send(x + 0), 'hex') END
$$;
CREATE FUNCTION shown(x anyelement) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT CASE pg_typeof(x)::oid
    WHEN 'float8'::regtype::oid THEN float_bits(x::text::float8)
    WHEN 'float4'::regtype::oid THEN float_bits(x::text::float4)
    WHEN 'bytea'::regtype::oid THEN 'x''' || substr(x::text, 3) || ''''
    ELSE x::text
  END
$$;

-- Ends with an error. Expressions call it where Loam refuses what PostgreSQL does not.
CREATE FUNCTION refuse() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'Loam refuses this' USING ERRCODE = 'data_exception';
END
$$;

-- The value of an expression, or the state and the message of its error.
CREATE TYPE answer AS (state text, value text);
CREATE FUNCTION answer(expression text) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  EXECUTE 'SELECT shown(' || expression || ')' INTO result;
  RETURN (''::text, result);
EXCEPTION WHEN OTHERS THEN
  RETURN (SQLSTATE::text, SQLERRM::text);
END
$$;
