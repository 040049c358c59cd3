"""stub"""
def write_report(session, result):
    return "x"
